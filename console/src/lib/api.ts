/** How the console calls the gateway: Connect with JSON, on its own origin, with the session's cookie. */
import { Code, ConnectError } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { QueryClient } from "@tanstack/react-query";

/** The way to the gateway. */
export const transport = createConnectTransport({ baseUrl: location.origin });

/** What is read is fresh for some seconds; what the caller did wrong is not asked again. */
export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      retry: (failures, error) => failures < 2 && ConnectError.from(error).code === Code.Unavailable,
      refetchOnWindowFocus: false,
    },
    mutations: { retry: false },
  },
});

/** Forgets what lists know, after something was changed. */
export const refresh = (): Promise<void> => queryClient.invalidateQueries();
