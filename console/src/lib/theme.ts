/** The theme and the density that this browser was told; `public/theme.js` sets them before anything is drawn. */

/** Keeps a theme; `system` follows the system's. */
export function chooseTheme(theme: "system" | "light" | "dark"): void {
  if (theme === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("theme");
  } else {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }
}

/** Rows of 32 pixels, or of 28. */
export function chooseDensity(): void {
  const { dataset } = document.documentElement;
  if (dataset.density === "dense") {
    delete dataset.density;
    localStorage.removeItem("density");
  } else {
    dataset.density = "dense";
    localStorage.setItem("density", "dense");
  }
}
