/** Signing in by a one-time link: its token stands behind the `#`, which no server is sent. */
import { useMutation } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { SessionService } from "#messages/limber/v1/session_service_pb.ts";
import { queryClient } from "../lib/api.ts";
import { spaced } from "../lib/words.ts";
import { Card, Head, Refused, Status, TextField } from "../parts/basics.tsx";

/** The token of a link, or what somebody pasted: the whole link or its token. */
const tokenOf = (text: string): string => /(?:#|^|[?&])token=([^&\s]+)/.exec(text)?.[1] ?? text.trim();

const tokenOfAddress = (): string => (location.hash.includes("token=") ? tokenOf(location.hash) : "");

/** A page of the console or the page of consent, and no other place. */
const isOwnPage = (path: string | undefined): path is string =>
  path !== undefined && /^\/(?:console(?:[/?#]|$)|oauth\/authorize\?)/.test(path);

/** The page. A link signs in by one click on it, so that what only looks at links uses none up. */
export function SignInPage() {
  const { to } = useSearch({ from: "/sign-in" });
  const navigate = useNavigate();
  const [token, setToken] = useState(tokenOfAddress);
  const [fault] = useState(() => /(?:#|&)error=(\w+)/.exec(location.hash)?.[1]);
  const [why] = useState(() => WHY[/&why=(\w+)/.exec(location.hash)?.[1] ?? ""]);
  const [pasted, setPasted] = useState("");
  const signIn = useMutation(SessionService.method.createSession);
  useEffect(() => {
    // What is in the address is in the history too.
    const forget = (): void => {
      if (location.hash !== "") history.replaceState(history.state, "", location.pathname + location.search);
    };
    // A link that is opened where this page is open already changes what stands behind the `#`, and loads nothing.
    const changed = (): void => {
      const next = tokenOfAddress();
      if (next === "") return;
      setToken(next);
      forget();
    };
    forget();
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  const go = async (text: string): Promise<void> => {
    await signIn.mutateAsync({ token: tokenOf(text) });
    queryClient.clear();
    await navigate({ href: isOwnPage(to) ? to : "/console" });
  };
  return (
    <Card>
      <Head title="Sign in" />
      <form
        className="grid gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          void go(token === "" ? pasted : token).catch(() => undefined);
        }}
      >
        {token === "" ? (
          <>
            <p className="text-muted">
              Open the link that the gateway printed when it started, or paste it here. An administrator of your
              organization makes you another one.
            </p>
            <TextField
              label="Link"
              value={pasted}
              onChange={setPasted}
              placeholder={`${location.origin}/sign-in#token=…`}
              required
            />
          </>
        ) : (
          <p className="text-muted">The link in your browser's address signs you in once.</p>
        )}
        <Refused error={signIn.error} />
        <button type="submit" className="button button-main justify-center" disabled={signIn.isPending}>
          Sign in
        </button>
      </form>
      {token === "" && <ByMail to={isOwnPage(to) ? to : undefined} fault={fault} why={why} />}
    </Card>
  );
}

/** Why an identity provider's claims match no member, by the `why` in the address. */
const WHY: Readonly<Record<string, string>> = {
  email_malformed: "Your identity provider sends an e-mail address that is not plain, such as name@example.com.",
  email_missing: "Your identity provider sends no e-mail address. Ask its administrator to map the claim email.",
  email_unverified:
    "Your identity provider does not say that your e-mail address is verified. Ask its administrator to map the claim email_verified, or xms_edov in Entra ID.",
  email_domain: "Your e-mail address belongs to a domain that this identity provider does not sign in.",
  not_a_member: "No member has your e-mail address. Ask an administrator of your organization for an invite.",
  deactivated: "Your membership is deactivated.",
  other_subject:
    "Your identity provider knew this member as another account. Ask an administrator to invite you again.",
  ambiguous: "Several members fit. Ask an administrator of your organization.",
};

/** The identity provider of an organization: the gateway knows it by the domain of the address, and sends the browser there. */
function ByMail({ to, fault, why }: { to: string | undefined; fault: string | undefined; why: string | undefined }) {
  const [email, setEmail] = useState("");
  return (
    <form
      className="mt-6 grid gap-3 border-t border-line pt-4"
      onSubmit={(event) => {
        event.preventDefault();
        location.assign(`/sign-in?${new URLSearchParams({ email, ...(to !== undefined && { return_to: to }) })}`);
      }}
    >
      {fault !== undefined && (
        <p role="alert">
          <Status tone="bad">The sign-in ended: {spaced(fault)}</Status>{" "}
          <a className="underline" href={`/docs/errors#${fault}`}>
            what that means
          </a>
          {why !== undefined && <span className="mt-1 block">{why}</span>}
        </p>
      )}
      <TextField
        label="E-mail"
        type="email"
        value={email}
        onChange={setEmail}
        required
        help="Of an organization that signs in at its own identity provider."
      />
      <button type="submit" className="button justify-center">
        Go to the identity provider
      </button>
    </form>
  );
}
