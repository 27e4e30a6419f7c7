/** The last chunks of a loop as they are sent, and small pictures of its cameras while the reader asks for them. */
import { createClient } from "@connectrpc/connect";
import { useEffect, useState } from "react";
import type { LoopAction, LoopPicture } from "#messages/limber/v1/loop_pb.ts";
import { LoopService } from "#messages/limber/v1/loop_service_pb.ts";
import { ImageFormat } from "#messages/limber/v1/observation_pb.ts";
import { transport } from "../../lib/api.ts";
import { follow, KEPT_S } from "./loops.ts";

const client = createClient(LoopService, transport);

/** A chunk, and when the page received it. */
export interface SeenAction {
  /** Unix seconds. */
  readonly at: number;
  readonly action: LoopAction;
}

/** Watches the chunks of a loop while the page is seen; the newest is last. */
export function useActions(loopId: string | undefined): readonly SeenAction[] {
  const [seen, setSeen] = useState<readonly SeenAction[]>([]);
  useEffect(() => {
    setSeen([]);
    if (loopId === undefined) return;
    return follow(
      (signal) => client.watchLoopActions({ loopIds: [loopId] }, { signal }),
      ({ actions }) => {
        const at = Date.now() / 1000;
        const news = (actions?.actions ?? []).map((action) => ({ at, action }));
        if (news.length > 0) setSeen((before) => [...before.filter((one) => one.at > at - KEPT_S), ...news]);
      },
    );
  }, [loopId]);
  return seen;
}

/** A camera's picture as an address for an image. */
export interface SeenPicture {
  readonly camera: string;
  readonly url: string;
}

/** The pictures of loops by stream id, and the loops whose pictures are withheld. */
interface Seen {
  readonly pictures: ReadonlyMap<string, readonly SeenPicture[]>;
  readonly withheld: ReadonlySet<string>;
  readonly error: unknown;
}

const NOTHING: Seen = { pictures: new Map(), withheld: new Set(), error: undefined };
const TYPES: Readonly<Record<number, string>> = {
  [ImageFormat.PNG]: "image/png",
  [ImageFormat.JPEG]: "image/jpeg",
  [ImageFormat.WEBP]: "image/webp",
};
/** The most loops that one stream can show. */
const MOST_PICTURED = 32;

const release = (pictures: readonly SeenPicture[] = []): void => {
  for (const { url } of pictures) URL.revokeObjectURL(url);
};

/** Watches the pictures of some loops while the page is seen. Only the newest ones are kept. No ids, no stream. */
export function usePictures(loopIds: readonly string[]): Seen {
  const [seen, setSeen] = useState<Seen>(NOTHING);
  const wanted = loopIds.slice(0, MOST_PICTURED).join(" ");
  useEffect(() => {
    setSeen(NOTHING);
    if (wanted === "") return;
    const pictures = new Map<string, readonly SeenPicture[]>();
    const withheld = new Set<string>();
    const show = (error?: unknown): void =>
      setSeen({ pictures: new Map(pictures), withheld: new Set(withheld), error });
    const stop = follow(
      (signal) => client.watchLoopPictures({ loopIds: wanted.split(" ") }, { signal }),
      (message) => {
        for (const id of message.pictures?.withheld ?? []) withheld.add(id);
        for (const [id, of] of Map.groupBy(message.pictures?.pictures ?? [], ({ loopId }) => loopId)) {
          const before = pictures.get(id);
          pictures.set(id, of.map(pictureOf));
          // The old one is on the screen until the new one is drawn.
          setTimeout(() => release(before), 1_000);
        }
        show();
      },
      show,
    );
    return () => {
      stop();
      for (const of of pictures.values()) release(of);
    };
  }, [wanted]);
  return seen;
}

const pictureOf = ({ camera, format, data }: LoopPicture): SeenPicture => ({
  camera,
  url: URL.createObjectURL(new Blob([data.slice()], { type: TYPES[format] ?? "" })),
});
