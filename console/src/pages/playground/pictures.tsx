/** The pictures of a request: chosen, dropped, pasted, or taken by this computer's camera. With the boxes and points of an answer over them. */
import { type ReactNode, useEffect, useRef, useState } from "react";
import type { GroundedBox, GroundedPoint } from "#messages/limber/v1/grounding_pb.ts";
import type { CameraSpec } from "#messages/limber/v1/input_contract_pb.ts";
import { bytes, percent } from "../../lib/format.ts";
import { Status } from "../../parts/basics.tsx";
import type { Picture } from "./draft.ts";
import { cameraOf, fitted, type Size, unfitOf, useSizes, wantedOf } from "./reads.ts";

/** A file as a `data:` address. */
export const read = (file: Blob): Promise<string> =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });

/** The encodings that the gateway reads. */
const TYPES = ["image/png", "image/jpeg", "image/webp"];
/** The gateway's limits of one picture and of a request, in bytes; base64 adds a third to the request. */
const MOST_BYTES = 16 * 2 ** 20;
const MOST_TOGETHER = 23 * 2 ** 20;

/** The files that can be sent beside `kept`, and why the others cannot. */
function sorted(files: Iterable<File>, kept: readonly Picture[]): { readonly good: File[]; readonly faults: string[] } {
  const good: File[] = [];
  const faults: string[] = [];
  let together = kept.reduce((sum, { url }) => sum + (url.length * 3) / 4, 0);
  for (const file of files) {
    const { value, unit } = bytes(file.size);
    if (!TYPES.includes(file.type))
      faults.push(`${file.name} is ${file.type || "of an unknown type"}; choose a PNG, JPEG or WebP image`);
    else if (file.size > MOST_BYTES)
      faults.push(`${file.name} has ${value} ${unit}; an image can have at most ${MOST_BYTES >> 20} MB`);
    else if (together + file.size > MOST_TOGETHER)
      faults.push(`with ${file.name} the request exceeds ${MOST_TOGETHER >> 20} MB of images; remove one first`);
    else {
      together += file.size;
      good.push(file);
    }
  }
  return { good, faults };
}

/** The pictures, and the ways to others. The user's first picture replaces those of an example. */
export function Pictures({
  pictures,
  onChange,
  cameras,
  isSequence = false,
}: {
  pictures: readonly Picture[];
  /** The cameras that the model reads; undefined where it says nothing of them. */
  cameras?: readonly CameraSpec[] | undefined;
  /** The pictures are of one camera at successive times. */
  isSequence?: boolean;
  onChange: (pictures: readonly Picture[]) => void;
}) {
  const file = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const [filming, setFilming] = useState(false);
  const sizes = useSizes(pictures);
  const [faults, setFaults] = useState<readonly string[]>([]);
  const missingIn = (given: readonly Picture[]): CameraSpec[] =>
    (cameras ?? []).filter((camera) => !given.some((picture, i) => cameraOf(picture, i, cameras ?? []) === camera));
  const missing = missingIn(pictures);
  const put = (urls: readonly string[]): void => {
    if (urls.length === 0) return;
    const kept = pictures.filter(({ sample }) => sample !== true);
    const samples = pictures.filter(({ sample }) => sample === true);
    const free = missingIn(kept);
    const nameOf = (i: number): string => {
      if (isSequence) return (kept[0] ?? samples[0])?.camera ?? "scene";
      const at = kept.length + i;
      return free[i]?.name || samples[i]?.camera || (at === 0 ? "wrist" : `camera_${at}`);
    };
    onChange([...kept, ...urls.map((url, i) => ({ camera: nameOf(i), url }))]);
  };
  const add = async (files: Iterable<File>): Promise<void> => {
    const { good, faults } = sorted(
      files,
      pictures.filter(({ sample }) => sample !== true),
    );
    setFaults(faults);
    put(await Promise.all(good.map(read)));
  };
  const latest = useRef(add);
  useEffect(() => {
    latest.current = add;
  });
  useEffect(() => {
    const paste = (event: ClipboardEvent): void => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length === 0) return;
      event.preventDefault();
      void latest.current(files);
    };
    document.addEventListener("paste", paste);
    return () => document.removeEventListener("paste", paste);
  }, []);
  return (
    <div
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void add(event.dataTransfer.files);
      }}
      className={`grid gap-2 rounded ${over ? "outline-2 outline-accent" : ""}`}
    >
      <div className={`grid gap-2 ${pictures.length > 1 ? "grid-cols-2" : ""}`}>
        {pictures.map((picture, i) => (
          <figure key={i} className="min-w-0">
            <Shown picture={picture} size={sizes.get(picture.url)} />
            <figcaption className="mt-1 flex items-center gap-1">
              <input
                aria-label={`name of camera ${i + 1}`}
                className="input w-full"
                value={picture.camera}
                onChange={(event) =>
                  onChange(pictures.map((other, k) => (k === i ? { ...other, camera: event.target.value } : other)))
                }
              />
              <button
                type="button"
                className="button"
                aria-label={`remove ${picture.camera}`}
                onClick={() => onChange(pictures.filter((_, k) => k !== i))}
              >
                ×
              </button>
            </figcaption>
            {cameras !== undefined && (
              <Suits
                picture={picture}
                camera={cameraOf(picture, i, cameras)}
                instead={missing[0]}
                size={sizes.get(picture.url)}
                onFit={(other) => onChange(pictures.map((each, k) => (k === i ? other : each)))}
              />
            )}
          </figure>
        ))}
      </div>
      {missing.length > 0 && (
        <ul aria-label="cameras that are read" className="text-sm">
          {missing.map((camera, i) => (
            <li key={camera.name || i}>
              <Status tone={camera.required ? "bad" : "off"}>
                {camera.name || "a camera"} {camera.required ? "is needed" : "may be sent"}
                {wantedOf(camera) !== "" && `: ${wantedOf(camera)}`}
              </Status>
            </li>
          ))}
        </ul>
      )}
      {pictures.length === 0 && (
        <p className="grid min-h-32 place-items-center rounded border border-dashed border-edge p-4 text-center text-muted">
          No image is sent.
        </p>
      )}
      <div className="flex flex-wrap gap-2">
        <button type="button" className="button" onClick={() => file.current?.click()}>
          {pictures.some(({ sample }) => sample === true) ? "Use your own picture" : "Add a picture"}
        </button>
        <button type="button" className="button" onClick={() => setFilming(!filming)}>
          {filming ? "Close the camera" : "This computer's camera"}
        </button>
        <input
          ref={file}
          type="file"
          accept={TYPES.join(",")}
          multiple
          hidden
          aria-label="pictures"
          onChange={(event) => {
            void add([...(event.target.files ?? [])]);
            // The same file can be chosen again.
            event.target.value = "";
          }}
        />
      </div>
      <p className="text-sm text-muted">
        Or drop or paste it: PNG, JPEG or WebP, at most {MOST_BYTES >> 20} MB each and {MOST_TOGETHER >> 20} MB
        together. It is sent upright, as its camera states.
      </p>
      {faults.length > 0 && (
        <ul role="alert" className="grid gap-1 text-sm text-bad">
          {faults.map((fault) => (
            <li key={fault} className="[overflow-wrap:anywhere]">
              {fault}
            </li>
          ))}
        </ul>
      )}
      {filming && (
        <Webcam
          onTake={(url) => {
            put([url]);
            setFilming(false);
          }}
        />
      )}
    </div>
  );
}

/** A picture, at most 24 rem high, and what lies over it. */
function Shown({ picture, size, children }: { picture: Picture; size: Size | undefined; children?: ReactNode }) {
  const maxWidth = size && `calc(24rem * ${size.width} / ${Math.max(size.height, 1)})`;
  return (
    <div className="relative mx-auto" style={{ maxWidth }}>
      <img src={picture.url} alt={`what ${picture.camera} sees`} className="block w-full rounded bg-panel" />
      {children}
    </div>
  );
}

/** The picture of a ground request with the boxes and points of its answer. */
export function Grounded({
  picture,
  boxes,
  points,
}: {
  picture: Picture;
  boxes: readonly GroundedBox[];
  points: readonly GroundedPoint[];
}) {
  const sizes = useSizes([picture]);
  return (
    <div className="max-w-md pt-4">
      <Shown picture={picture} size={sizes.get(picture.url)}>
        <Marks boxes={boxes} points={points} />
      </Shown>
    </div>
  );
}

/** Boxes and points, by their share of the picture. What they are called comes from a model and is a text. */
function Marks({ boxes, points }: { boxes: readonly GroundedBox[]; points: readonly GroundedPoint[] }) {
  const share = (value: number): string => `${Math.min(Math.max(value, 0), 1) * 100}%`;
  return (
    <>
      {boxes.map((box, i) => (
        <div
          key={i}
          data-box=""
          className="absolute border-2 border-[#f0e442] outline outline-black"
          style={{
            left: share(box.xMin),
            top: share(box.yMin),
            width: share(box.xMax - box.xMin),
            height: share(box.yMax - box.yMin),
          }}
        >
          <span className="absolute bottom-full left-0 max-w-48 truncate bg-black px-1 text-xs text-white">
            {box.label} {percent(box.confidence)}
          </span>
        </div>
      ))}
      {points.map((point, i) => (
        <div
          key={i}
          title={point.label}
          className="absolute size-3 -translate-x-1/2 -translate-y-1/2 rounded-full border-2 border-black bg-[#f0e442]"
          style={{ left: share(point.x), top: share(point.y) }}
        />
      ))}
    </>
  );
}

function Webcam({ onTake }: { onTake: (url: string) => void }) {
  const video = useRef<HTMLVideoElement>(null);
  const [fault, setFault] = useState("");
  useEffect(() => {
    let stream: MediaStream | undefined;
    let gone = false;
    navigator.mediaDevices?.getUserMedia({ video: { width: 640, height: 480 } }).then(
      (opened) => {
        stream = opened;
        if (gone) for (const track of opened.getTracks()) track.stop();
        else if (video.current !== null) video.current.srcObject = opened;
      },
      (error: unknown) => setFault(error instanceof Error ? error.message : String(error)),
    );
    return () => {
      gone = true;
      for (const track of stream?.getTracks() ?? []) track.stop();
    };
  }, []);
  const take = (): void => {
    const seen = video.current;
    if (seen === null) return;
    const canvas = document.createElement("canvas");
    canvas.width = seen.videoWidth;
    canvas.height = seen.videoHeight;
    canvas.getContext("2d")?.drawImage(seen, 0, 0);
    onTake(canvas.toDataURL("image/jpeg", 0.9));
  };
  if (fault !== "") return <p className="text-bad">No camera: {fault}</p>;
  return (
    <div className="grid gap-2">
      <video ref={video} autoPlay playsInline muted className="w-full rounded bg-panel" />
      <button type="button" className="button" onClick={take}>
        Take the picture
      </button>
    </div>
  );
}

/** Whether a picture is what the model reads of that camera, and the picture that would be. */
function Suits({
  picture,
  camera,
  instead,
  size,
  onFit,
}: {
  picture: Picture;
  camera: CameraSpec | undefined;
  /** A camera that is read and has no picture. */
  instead: CameraSpec | undefined;
  size: Size | undefined;
  onFit: (picture: Picture) => void;
}) {
  if (camera === undefined)
    return (
      <p className="flex flex-wrap items-center gap-2 text-sm text-muted">
        The model does not read this camera.
        {instead !== undefined && instead.name !== "" && (
          <button type="button" className="button text-ink" onClick={() => void fitted(picture, instead).then(onFit)}>
            Send it as {instead.name}
          </button>
        )}
      </p>
    );
  const unfit = unfitOf(picture, size, camera);
  if (unfit === "")
    return (
      <p className="text-sm">
        <Status tone="good">{wantedOf(camera) === "" ? "read" : `read: ${wantedOf(camera)}`}</Status>
      </p>
    );
  return (
    <p className="flex flex-wrap items-center gap-2 text-sm">
      <Status tone="bad">
        <span className="whitespace-normal">{unfit}</span>
      </Status>
      <button type="button" className="button" onClick={() => void fitted(picture, camera).then(onFit)}>
        Make it fit
      </button>
    </p>
  );
}
