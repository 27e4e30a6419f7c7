/** Lists that come in pages: the rows so far, and the way to more of them. */
import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { callUnaryMethod, createConnectQueryKey, useTransport } from "@connectrpc/connect-query";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";

/** Asks for a list page by page. `input` holds filters and the size of a page; the cursor is added. */
export function useList<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  input: MessageInitShape<I>,
  { enabled = true, refetchInterval }: { enabled?: boolean; refetchInterval?: number } = {},
) {
  type Row = MessageShape<O> extends { data: (infer R)[] } ? R : never;
  const transport = useTransport();
  const asked = useInfiniteQuery({
    queryKey: createConnectQueryKey({ schema: method, transport, input, cardinality: undefined }),
    queryFn: async ({ pageParam, signal }) => {
      const request = pageParam === undefined ? input : ({ ...input, cursor: pageParam } as MessageInitShape<I>);
      const answer = await callUnaryMethod(transport, method, request, { signal });
      return answer as MessageShape<O> & { data: Row[]; nextCursor?: string };
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ nextCursor }) => nextCursor,
    enabled,
    refetchInterval: refetchInterval ?? false,
  });
  const { data, error, isPending, isFetchingNextPage, hasNextPage, fetchNextPage, refetch } = asked;
  const rows = useMemo(() => data?.pages.flatMap((page) => page.data) ?? [], [data]);
  const next = useCallback(() => void fetchNextPage(), [fetchNextPage]);
  const again = useCallback(() => void refetch(), [refetch]);
  return {
    rows,
    error,
    first: data?.pages[0],
    loading: isPending || isFetchingNextPage,
    isPending,
    more: hasNextPage ? next : undefined,
    again,
  };
}
