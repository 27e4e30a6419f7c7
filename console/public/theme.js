// Before anything is drawn: the theme that was chosen here, so that the page does not flash in the other one.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  if (localStorage.getItem("density") === "dense") document.documentElement.dataset.density = "dense";
} catch {
  // A browser that keeps nothing shows the system's theme.
}
