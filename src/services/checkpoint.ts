/** Signed checkpoints: the keys of model makers, and their signed statements. */
import { create, toJson } from "@bufbuild/protobuf";
import { SafetyBoundsSchema } from "../../gen/limber/v1/action_pb.ts";
import { type MakerKey, MakerKeySchema } from "../../gen/limber/v1/checkpoint_pb.ts";
import type { CheckpointService } from "../../gen/limber/v1/checkpoint_service_pb.ts";
import { InputContractSchema } from "../../gen/limber/v1/input_contract_pb.ts";
import { byCall, type Call, type Implementation, keyOf } from "../call.ts";
import { violation } from "../contracts/contract.ts";
import { ed25519Key, pemOf, statementOf } from "../contracts/trust.ts";
import { Reason, refuse } from "../errors.ts";
import { audit } from "../store/account/audit.ts";
import { type Queryable, tx } from "../store/database/tx.ts";
import { addMakerKey, deleteMakerKey, type MakerKeyRecord, makerKeys, ownerOrg } from "../store/supply/supply.ts";
import type { SupplyDeps } from "../supply/withdraw.ts";

/** The most keys per owner name. */
const MOST_KEYS = 8;

/** The RPCs for signed checkpoints. */
export function checkpointService({
  sql,
  refresh,
}: Pick<SupplyDeps, "sql" | "refresh">): Implementation<typeof CheckpointService> {
  return {
    async addMakerKey({ owner, publicKey, name = "" }, call) {
      const key = ed25519Key(publicKey);
      if (!key) throw violation("public_key", "must be an Ed25519 public key in PEM", "value_error");
      const { orgId } = keyOf(call);
      const added = await tx(sql, async (tx) => {
        await assertOwn(tx, owner, call, { lock: true });
        const pem = pemOf(key);
        const known = await makerKeys(tx, owner);
        if (known.length >= MOST_KEYS && !known.some((each) => each.publicKey === pem))
          throw violation("owner", `already has ${MOST_KEYS} keys, the maximum; delete one first`, "too_long");
        const added = await addMakerKey(tx, { owner, orgId, name, publicKey: pem });
        const details = { owner, public_key: pem };
        await audit(tx, { ...byCall(call), orgId, action: "maker_key.added", subject: added.id, details });
        return added;
      });
      await refresh();
      return { key: messageOf(added) };
    },

    async listMakerKeys({ owner }, call) {
      await assertOwn(sql, owner, call);
      const keys = await makerKeys(sql, owner);
      return { object: "list", data: keys.map(messageOf) };
    },

    async deleteMakerKey({ owner, makerKeyId }, call) {
      const { orgId } = keyOf(call);
      await tx(sql, async (tx) => {
        await assertOwn(tx, owner, call, { lock: true });
        const isDeleted = await deleteMakerKey(tx, owner, makerKeyId);
        if (!isDeleted) throw refuse(Reason.NOT_FOUND, "key not found");
        const details = { owner };
        await audit(tx, { ...byCall(call), orgId, action: "maker_key.deleted", subject: makerKeyId, details });
      });
      await refresh();
      return { object: "maker_key", makerKeyId, deleted: true };
    },

    async stateCheckpoint({ servedBy: provider, model, digest, input, bounds }) {
      if (!input) throw new Error("the schema requires the input contract");
      const statement = statementOf({
        provider,
        model,
        digest,
        input: toJson(InputContractSchema, input) as object, // a message is an object
        bounds: bounds ? (toJson(SafetyBoundsSchema, bounds) as object) : null,
      });
      return { statement };
    },
  };
}

/** Refuses with 404 a name that the organization does not own. `lock` keeps the ownership until the transaction ends. */
async function assertOwn(sql: Queryable, owner: string, call: Call, { lock = false } = {}): Promise<void> {
  if ((await ownerOrg(sql, owner, { lock })) !== keyOf(call).orgId)
    throw refuse(Reason.NOT_FOUND, "owner name not found in this organization");
}

const messageOf = ({ id, owner, name, publicKey, created }: MakerKeyRecord): MakerKey =>
  create(MakerKeySchema, { id, owner, name, publicKey, created });
