/** The input of one answer: images with their sizes as sent and as the model reads them, the instruction, and the state values. */
import type { InputContract } from "#messages/limber/v1/input_contract_pb.ts";
import { InputNeed } from "#messages/limber/v1/input_contract_pb.ts";
import { bytes, plain } from "../../lib/format.ts";
import { Pairs } from "../../parts/basics.tsx";
import type { Draft, Picture } from "./draft.ts";
import { cameraOf, layoutOf, layoutsOf, type Size, unitOf, useSizes } from "./reads.ts";

/** The draft as it was sent, and what the model that answered reads; without `input` that is unknown. */
export function Seen({ sent, input }: { sent: Draft; input: InputContract | undefined }) {
  const sizes = useSizes(sent.pictures);
  const { contract, instruction, horizon, space, state } = sent;
  const isRead = (need: InputNeed | undefined): boolean => need !== InputNeed.IGNORED;
  const layout = input && layoutOf(state, layoutsOf(input, space));
  return (
    <section aria-label="What the model saw" className="mt-3 border-t border-line pt-2">
      <h3 className="mb-2 text-sm font-semibold">What the model saw</h3>
      {sent.pictures.length > 0 && (
        <ul className="mb-2 grid gap-2">
          {sent.pictures.map((picture, i) => (
            <li key={i} className="flex items-start gap-2">
              <img src={picture.url} alt="" className="size-14 shrink-0 rounded bg-panel object-contain" />
              <p className="min-w-0 text-sm">
                <span className="font-medium">{picture.camera}</span>
                <span className="block text-muted">{wayOf(picture, i, sizes.get(picture.url), contract, input)}</span>
              </p>
            </li>
          ))}
        </ul>
      )}
      <Pairs
        of={[
          sent.pictures.length === 0 && ["images", "none sent"],
          [
            "instruction",
            instruction === ""
              ? "none sent"
              : `“${instruction}”${isRead(input?.language?.need) ? "" : " (the model does not read it)"}`,
          ],
          contract === "act" && [
            "state",
            state.length === 0
              ? "none sent"
              : state
                  .map(({ name, value }, i) => {
                    const unit = layout === undefined ? "" : unitOf(layout, name, i);
                    return `${name || layout?.names[i] || i} ${plain(value)}${unit === "" ? "" : ` ${unit}`}`;
                  })
                  .join(", "),
          ],
          contract === "act" && ["action space", space === "" ? "the model's only one" : space],
          contract !== "ground" && ["horizon", horizon === "" ? "the model's default" : horizon],
        ]}
      />
    </section>
  );
}

/** How an image reached the model: `640 × 480 JPEG, 34 kB; resized to 224 × 224`. */
function wayOf(
  picture: Picture,
  at: number,
  size: Size | undefined,
  contract: Draft["contract"],
  input: InputContract | undefined,
): string {
  const { url, original } = picture;
  const [head = "", data = ""] = url.split(",", 2);
  const kind = /^data:image\/([a-z]+)/.exec(head)?.[1]?.toUpperCase() ?? "image";
  const weight = bytes(Math.floor((data.length * 3) / 4));
  const sent = `${size === undefined ? "" : `${size.width} × ${size.height} `}${kind}, ${weight.value} ${weight.unit}`;
  const cropped =
    original === undefined ? "" : ` (cropped and scaled from ${original.width} × ${original.height} on this page)`;
  return `sent as ${sent}${cropped}${fateOf(picture, at, size, contract, input)}`;
}

/** What happened to an image behind the gateway, as far as the model's contract states it. */
function fateOf(
  picture: Picture,
  at: number,
  size: Size | undefined,
  contract: Draft["contract"],
  input: InputContract | undefined,
): string {
  const cameras = contract === "predict" ? undefined : input?.cameras?.cameras;
  if (cameras === undefined) return "";
  const camera = cameraOf(picture, at, cameras);
  if (camera === undefined) return "; the model does not read this camera";
  const { width = size?.width, height = size?.height, name } = camera;
  const renamed = name !== "" && name !== picture.camera ? `, read as ${name}` : "";
  const isSame = size === undefined || (width === size.width && height === size.height);
  return isSame ? `${renamed}; read in this size` : `${renamed}; resized to ${width} × ${height} for the model`;
}
