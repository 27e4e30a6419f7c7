/** Why a test of an identity provider failed, in words of the gateway: no text of the provider is passed on. */
import { IssuerStep } from "../../gen/limber/v1/issuer_service_pb.ts";
import { Reason, type Refusal } from "../errors.ts";
import { failedLayer } from "../upstream/transport/guard.ts";

/** The failed step of a test and its reason, and the identifier if the metadata was found. */
export interface IssuerFault {
  failed?: IssuerStep;
  reason?: string;
  issuer?: string;
}

/** Explains an error. `step` is the failed step if the connection itself worked, `refused` the gateway's own refusal within the error. */
export function faultOf(
  thrown: unknown,
  { step, refused, allowPrivate }: { step: IssuerStep; refused: Refusal | undefined; allowPrivate: boolean },
): IssuerFault {
  const hint = allowPrivate ? "" : PRIVATE_HINT;
  if (refused?.reason === Reason.ADDRESS_REFUSED)
    return { failed: IssuerStep.ADDRESS, reason: `${refused.message}${hint}` };
  switch (failedLayer(thrown)) {
    case "address":
      return { failed: IssuerStep.ADDRESS, reason: `the name resolves to an address that is not public${hint}` };
    case "dns":
      return {
        failed: IssuerStep.DNS,
        reason: "DNS has no address for the name; check its spelling, and that the gateway's name servers know it",
      };
    case "tls":
      return { failed: IssuerStep.TLS, reason: certificateFault(thrown) };
    case "connection":
      return {
        failed: IssuerStep.CONNECTION,
        reason: "the server accepts no connection or does not respond in time; check the port and firewalls",
      };
    default:
      return { failed: step, reason: step === IssuerStep.CLIENT ? clientFault(thrown) : DISCOVERY_FAULT };
  }
}

const PRIVATE_HINT =
  "; if the issuer is in a private network, the operator sets `LIMBER_ALLOW_PRIVATE_ADDRESSES=true` and restarts the gateway";

const DISCOVERY_FAULT =
  "`/.well-known/openid-configuration` below the address is not the metadata of this issuer: it must be JSON with the same `issuer`, and name the authorization, token and key endpoints";

const UNKNOWN_CA =
  "the server's certificate is self-signed or from an unknown CA; the operator adds the CA by `NODE_EXTRA_CA_CERTS`";

/** Frequent faults, by OpenSSL's codes. */
const CERTIFICATE_FAULTS: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: "the server's certificate has expired; renew it",
  ERR_TLS_CERT_ALTNAME_INVALID: "the server's certificate is for another name; use the name that it was issued for",
  DEPTH_ZERO_SELF_SIGNED_CERT: UNKNOWN_CA,
  SELF_SIGNED_CERT_IN_CHAIN: UNKNOWN_CA,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNKNOWN_CA,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "the server does not send its intermediate certificates; add them to its chain",
};

function certificateFault(thrown: unknown): string {
  for (let each = thrown; each instanceof Error; each = each.cause) {
    const known = "code" in each ? CERTIFICATE_FAULTS[String(each.code)] : undefined;
    if (known !== undefined) return known;
  }
  return "the server does not speak TLS on this port, or its certificate is invalid";
}

/** The error of the token endpoint, by the codes of RFC 6749, section 5.2. */
function clientFault(thrown: unknown): string {
  const error = thrown instanceof Error && "error" in thrown ? thrown.error : undefined;
  if (error === "invalid_client") return "the issuer does not accept `client_id` and `client_secret`; compare both";
  if (error === "unauthorized_client" || error === "unsupported_grant_type")
    return "the issuer does not let this client use the authorization code flow; enable it there";
  return "the token endpoint did not respond as OAuth 2.0 defines; check that the client exists and is enabled";
}
