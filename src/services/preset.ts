/** Presets: named request configurations of an organization. */
import { create, toJson } from "@bufbuild/protobuf";
import { type Preset, type PresetConfig, PresetConfigSchema, PresetSchema } from "../../gen/limber/v1/preset_pb.ts";
import type { PresetService } from "../../gen/limber/v1/preset_service_pb.ts";
import { byCall, type Implementation, keyOf } from "../call.ts";
import { chainOf, knownActionSpace, refuseConflicts, seedOf } from "../contracts/contract.ts";
import { refuseLargeMetadata } from "../inference/call.ts";
import { configOf, type PresetCache, presetNotFound } from "../inference/prepare.ts";
import { audit } from "../store/account/audit.ts";
import { deletePreset, putPreset } from "../store/account/settings.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { cursorOfName, DEFAULT_PAGE, nameOfCursor, readPage } from "./pages.ts";

/** Dependencies of presets. */
export interface PresetDeps {
  sql: Sql;
  book: PresetCache;
}

/** The preset RPCs. */
export function presetService({ sql, book }: PresetDeps): Implementation<typeof PresetService> {
  return {
    async putPreset({ name, config: given }, call) {
      const { orgId } = keyOf(call);
      const sound = soundConfig(given!); // the schema requires it
      const config = toJson(PresetConfigSchema, sound) as object; // a message is an object
      const saved = await tx(sql, async (tx) => {
        const { preset, changed } = await putPreset(tx, orgId, { name, config });
        const details = { version: preset.version };
        if (changed) await audit(tx, { ...byCall(call), orgId, action: "preset.saved", subject: name, details });
        return preset;
      });
      book.forget(orgId);
      const preset = create(PresetSchema, { ...saved, config: sound });
      return { preset };
    },

    async listPresets({ limit = DEFAULT_PAGE, cursor }, call) {
      const last = nameOfCursor(cursor);
      const presets = await book.of(keyOf(call).orgId);
      const after = [...presets.keys()].filter((name) => name > last).sort();
      const { records: names, ...page } = await readPage(limit, async (most) => after.slice(0, most), cursorOfName);
      return { ...page, data: names.map((name) => presets.get(name)![0]!) };
    },

    async getPreset({ name, version }, call) {
      const presets = await book.of(keyOf(call).orgId);
      const versions: readonly Preset[] = presets.get(name) ?? [];
      const preset = version === undefined ? versions[0] : versions.find((each) => each.version === version);
      if (!preset) throw presetNotFound(version === undefined ? name : `${name}@${version}`, "name", presets);
      return { preset };
    },

    async deletePreset({ name }, call) {
      const { orgId } = keyOf(call);
      const isDeleted = await tx(sql, async (tx) => {
        const isDeleted = await deletePreset(tx, orgId, name);
        if (isDeleted) await audit(tx, { ...byCall(call), orgId, action: "preset.deleted", subject: name });
        return isDeleted;
      });
      book.forget(orgId);
      if (!isDeleted) throw presetNotFound(name, "name", await book.of(orgId));
      return { object: "preset", name, deleted: true };
    },
  };
}

/** Validates a configuration for contradictions. Each call checks what depends on supply. */
function soundConfig(config: PresetConfig): PresetConfig {
  refuseConflicts(config.provider);
  if (config.actionSpace !== undefined) knownActionSpace(config.actionSpace);
  seedOf(config.seed);
  refuseLargeMetadata(config.metadata);
  const models = [...chainOf(config.models, config.provider)];
  const provider = config.provider && { ...config.provider, models: [] };
  return configOf({ ...config, models, ...(provider && { provider }) });
}
