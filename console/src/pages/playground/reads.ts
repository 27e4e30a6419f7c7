/** What the model that a draft goes to reads, and a draft that is made to fit it. */
import { create } from "@bufbuild/protobuf";
import { useQuery } from "@connectrpc/connect-query";
import { useEffect, useRef, useState } from "react";
import { Contract } from "#messages/limber/v1/contract_pb.ts";
import {
  InferenceService,
  PreviewedRequestSchema,
  PreviewRoutesRequestSchema,
  type PreviewRoutesResponse,
} from "#messages/limber/v1/inference_service_pb.ts";
import type { CameraSpec, InputContract, ProprioSpec } from "#messages/limber/v1/input_contract_pb.ts";
import { ImageFormat, ImageFormatSchema } from "#messages/limber/v1/observation_pb.ts";
import { wordOf } from "../../lib/words.ts";
import type { Draft, Picture, StateValue } from "./draft.ts";

/** Who would serve the draft, and what it reads. */
export interface Reader {
  readonly model: string;
  readonly provider: string;
  readonly input: InputContract;
}

/** The plan of the draft as it stood `settled`. */
export interface Planned {
  readonly data: PreviewRoutesResponse | undefined;
  readonly error: Error | null;
  /** The draft that the plan is of, where it is of the newest that was asked about. */
  readonly of: Draft | undefined;
}

const readerOf = (response: PreviewRoutesResponse | undefined): Reader | undefined => {
  const [first] = response?.plan ?? [];
  return first?.input && { model: first.model, provider: first.provider, input: first.input };
};

/**
 * What the first offering of the plan reads; where nobody takes the draft as it is, what the first would read that takes the model and the
 * action space. Undefined where nothing is known.
 */
export function useReader(draft: Draft, planned: Planned): Reader | undefined {
  const { contract, model, space } = draft;
  const bare = useQuery(
    InferenceService.method.previewRoutes,
    create(PreviewRoutesRequestSchema, {
      contract: contract === "act" ? Contract.ACT : Contract.PREDICT,
      request: create(PreviewedRequestSchema, {
        model,
        ...(contract === "act" && space !== "" && { actionSpace: space }),
      }),
    }),
    { enabled: contract !== "ground" && model !== "" },
  );
  // A plan that is still asked for says nothing of another model or action space.
  const known = useRef<{ readonly key: string; readonly own: Reader | undefined; readonly takes: boolean }>(undefined);
  if (planned.of !== undefined)
    known.current = {
      key: keyOf(planned.of),
      own: readerOf(planned.data),
      takes: (planned.data?.plan.length ?? 0) > 0,
    };
  if (contract === "ground" || known.current?.key !== keyOf(draft)) return undefined;
  const { own, takes } = known.current;
  return own ?? (takes ? undefined : readerOf(bare.data));
}

/** What a draft's reader depends on, beside the observation. */
const keyOf = ({ contract, model, space }: Draft): string => `${contract} ${model} ${space}`;

/** The layouts of state that a model reads in an action space. */
export const layoutsOf = ({ proprio }: InputContract, space: string): readonly ProprioSpec[] =>
  proprio.filter(({ actionSpace }) => actionSpace === undefined || actionSpace === space);

const sizeOf = ({ dimension, names }: ProprioSpec): number | undefined =>
  dimension ?? (names.length > 0 ? names.length : undefined);

/** The layout that a state has, if it has one of them. */
export function layoutOf(state: readonly StateValue[], layouts: readonly ProprioSpec[]): ProprioSpec | undefined {
  return layouts.find((layout) => {
    const size = sizeOf(layout);
    if (size !== undefined && (layout.moreValues ? state.length < size : state.length !== size)) return false;
    const given = state.map(({ name }) => name);
    if (layout.names.length === 0 || given.every((name) => name === "")) return true;
    return layout.anyOrder
      ? layout.names.every((name) => given.includes(name))
      : layout.names.every((name, i) => given[i] === name);
  });
}

/** What a layout is called: its names, or how many numbers it has. */
export function nameOf(layout: ProprioSpec): string {
  if (layout.names.length > 0) return layout.names.join(", ");
  const size = sizeOf(layout);
  return size === 0 ? "no state" : `${size ?? "any number of"} numbers`;
}

/** A state in a layout: values keep their names, and begin at 0. */
export function stateIn(layout: ProprioSpec, state: readonly StateValue[]): StateValue[] {
  const known = new Map(state.map(({ name, value }) => [name, value]));
  return Array.from({ length: sizeOf(layout) ?? state.length }, (_, i) => {
    const name = layout.names[i] ?? "";
    return { name, value: known.get(name) ?? (layout.names.length === 0 ? (state[i]?.value ?? 0) : 0) };
  });
}

/** The unit of a number of a layout, by its name or else by its place; empty where none is stated. */
export function unitOf({ names, units }: ProprioSpec, name: string, at: number): string {
  const place = names.indexOf(name);
  return (units.length === 1 ? units[0] : units[place < 0 ? at : place]) ?? "";
}

/** From where to where a number of a unit is likely to be: the schema states no ranges. */
export const rangeOf = (unit: string): readonly [number, number] => RANGES[unit] ?? [-3.2, 3.2];

const RANGES: Readonly<Record<string, readonly [number, number]>> = {
  rad: [-Math.PI, Math.PI],
  deg: [-180, 180],
  m: [-2, 2],
  cm: [-200, 200],
  mm: [-2000, 2000],
  "m/s": [-2, 2],
  "rad/s": [-Math.PI, Math.PI],
  "1": [-1, 1],
  "%": [0, 100],
  N: [-100, 100],
  Nm: [-100, 100],
};

/** The camera that a picture is taken for: by its name, else by its place. Undefined where the model reads no such picture. */
export function cameraOf({ camera }: Picture, at: number, cameras: readonly CameraSpec[]): CameraSpec | undefined {
  return (
    cameras.find(({ name, aliases }) => name !== "" && (name === camera || aliases.includes(camera))) ??
    (cameras[at]?.name === "" ? cameras[at] : undefined)
  );
}

const TYPES: Readonly<Record<number, string>> = {
  [ImageFormat.PNG]: "image/png",
  [ImageFormat.JPEG]: "image/jpeg",
  [ImageFormat.WEBP]: "image/webp",
};

/** What a camera's pictures have to be, in words: `224 × 224 PNG`; empty where anything goes. */
export function wantedOf({ width, height, anySize, formats }: CameraSpec): string {
  const size = width === undefined && height === undefined ? "" : `${width ?? "any"} × ${height ?? "any"}`;
  const kinds = formats.map((format) => wordOf(ImageFormatSchema, format).toUpperCase()).join(" or ");
  return [size, size !== "" && anySize ? "or another size" : "", kinds].filter(Boolean).join(" ");
}

/** What of a picture does not suit its camera; empty where it does. */
export function unfitOf({ url }: Picture, size: Size | undefined, camera: CameraSpec): string {
  const type = /^data:([^;,]+)/.exec(url)?.[1];
  if (type !== undefined && camera.formats.length > 0 && !camera.formats.some((format) => TYPES[format] === type))
    return `${type.replace("image/", "").toUpperCase()}, and it reads ${wantedOf(camera)}`;
  if (size === undefined || camera.anySize) return "";
  const { width = size.width, height = size.height } = camera;
  return width === size.width && height === size.height
    ? ""
    : `${size.width} × ${size.height}, and it reads ${wantedOf(camera)}`;
}

/** The picture in the size and the encoding that a camera's pictures have: its middle, scaled. */
export async function fitted(picture: Picture, camera: CameraSpec): Promise<Picture> {
  const image = new Image();
  image.src = picture.url;
  await image.decode();
  const { width = image.naturalWidth, height = image.naturalHeight } = camera.anySize ? {} : camera;
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const scale = Math.max(width / image.naturalWidth, height / image.naturalHeight);
  const [drawnWidth, drawnHeight] = [image.naturalWidth * scale, image.naturalHeight * scale];
  canvas
    .getContext("2d")!
    .drawImage(image, (width - drawnWidth) / 2, (height - drawnHeight) / 2, drawnWidth, drawnHeight);
  const own = /^data:([^;,]+)/.exec(picture.url)?.[1];
  const [format] = camera.formats;
  const type = own !== undefined && camera.formats.some((each) => TYPES[each] === own) ? own : TYPES[format ?? 0];
  return {
    camera: camera.name === "" ? picture.camera : camera.name,
    url: canvas.toDataURL(type ?? own ?? "image/png", 0.9),
    ...(picture.sample === true && { sample: true }),
    original: picture.original ?? { width: image.naturalWidth, height: image.naturalHeight },
  };
}

/**
 * Gives the state the model's layout where nobody takes the draft as it stands: once for each model and action space, so that what a person
 * changes afterwards stays.
 */
export function useLayout(
  draft: Draft,
  planned: Planned,
  reader: Reader | undefined,
  change: (part: Partial<Draft>) => void,
): void {
  const done = useRef("");
  const { contract, space, state } = draft;
  const key = keyOf(draft);
  const refused = planned.of === draft && planned.data?.plan.length === 0;
  useEffect(() => {
    if (!refused || reader === undefined || contract !== "act" || done.current === key) return;
    done.current = key;
    const layouts = layoutsOf(reader.input, space);
    const [first] = layouts;
    if (first !== undefined && layoutOf(state, layouts) === undefined) change({ state: stateIn(first, state) });
  }, [refused, reader, contract, key, space, state, change]);
}

/** The size of an upright picture, in pixels. */
export interface Size {
  readonly width: number;
  readonly height: number;
}

/** The sizes of pictures by their addresses, as far as they are known. */
export function useSizes(pictures: readonly Picture[]): ReadonlyMap<string, Size> {
  const [sizes, setSizes] = useState<ReadonlyMap<string, Size>>(new Map());
  const urls = pictures.map(({ url }) => url).join("\n");
  useEffect(() => {
    let gone = false;
    const measured = urls.split("\n").map(async (url) => {
      const image = new Image();
      image.src = url;
      await image.decode();
      return [url, { width: image.naturalWidth, height: image.naturalHeight }] as const;
    });
    // A picture that cannot be read has no size.
    void Promise.allSettled(measured).then((all) => {
      if (!gone) setSizes(new Map(all.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []))));
    });
    return () => {
      gone = true;
    };
  }, [urls]);
  return sizes;
}
