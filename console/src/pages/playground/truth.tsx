/** What came after the pictures of a prediction, where it is known: what predicted frames are held against. */
import { useRef } from "react";
import { read } from "./pictures.tsx";

/** The pictures that came, in the order of the names of their files. */
export function Truth({
  pictures,
  onChange,
}: {
  pictures: readonly string[];
  onChange: (pictures: readonly string[]) => void;
}) {
  const file = useRef<HTMLInputElement>(null);
  const take = async (files: readonly File[]): Promise<void> => {
    const inOrder = files
      .filter(({ type }) => type.startsWith("image/"))
      .toSorted((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    onChange(await Promise.all(inOrder.map(read)));
  };
  return (
    <div className="mt-4 grid gap-2">
      <h2 className="text-sm font-medium">What came</h2>
      <p className="text-sm text-muted">
        The true next pictures, one for each frame by the names of their files. The answer is held against them; they
        are sent nowhere.
      </p>
      {pictures.length > 0 && (
        <ol className="grid grid-cols-4 gap-1">
          {pictures.map((url, i) => (
            <li key={i}>
              <img src={url} alt={`what came, ${i + 1}`} className="block w-full rounded bg-panel" />
            </li>
          ))}
        </ol>
      )}
      <div className="flex flex-wrap gap-2">
        <button type="button" className="button" onClick={() => file.current?.click()}>
          Add what came
        </button>
        {pictures.length > 0 && (
          <button type="button" className="button" onClick={() => onChange([])}>
            Remove it
          </button>
        )}
        <input
          ref={file}
          type="file"
          accept="image/png,image/jpeg,image/webp"
          multiple
          hidden
          aria-label="what came"
          onChange={(event) => void take([...(event.target.files ?? [])])}
        />
      </div>
    </div>
  );
}
