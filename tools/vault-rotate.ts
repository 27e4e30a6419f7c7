/**
 * Wraps every sealed secret of DATABASE_URL under LIMBER_MASTER_KEY: `npm run vault:rotate`, while the gateway runs. The keys that
 * they were sealed under are read from LIMBER_MASTER_KEY_PREVIOUS. It may be ended at any moment and run again.
 *
 * `npm run vault:rotate -- --lost` gives up the master keys that are not loaded, so that a gateway starts without them: what was sealed
 * under them has to be given anew.
 */
import { ConfigError, readConfig } from "../src/config.ts";
import { rotate } from "../src/services/credential.ts";
import { forgetHashKey, forgetMasterKeys } from "../src/store/account/sealed.ts";
import { connect } from "../src/store/database/tx.ts";
import { createVault } from "../src/vault.ts";

async function main(): Promise<number> {
  const config = readConfig();
  const { masterKey, otherMasterKeys } = config;
  const databaseUrl = config.databaseDirectUrl ?? config.databaseUrl;
  if (databaseUrl === undefined || masterKey === undefined)
    throw new ConfigError(["DATABASE_URL and LIMBER_MASTER_KEY say where the secrets are and what to seal them under"]);
  const sql = connect(databaseUrl, { max: 2 });
  try {
    const vault = createVault(masterKey, otherMasterKeys);
    if (process.argv.includes("--lost")) {
      await forgetMasterKeys(sql, vault.heads);
      await forgetHashKey(sql, vault.heads);
    }
    const rotations = await rotate(sql, vault, (name, done, of) => console.log(`${name} ${done} of ${of}`));
    for (const { name, faulty } of rotations)
      for (const id of faulty)
        console.error(`${name}: ${id} does not open under any key that is loaded; left as it is`);
    const faults = rotations.reduce((sum, { faulty }) => sum + faulty.length, 0);
    if (faults === 0) await forgetMasterKeys(sql, [vault.head]);
    console.log(
      faults === 0
        ? "every secret is sealed under LIMBER_MASTER_KEY; LIMBER_MASTER_KEY_PREVIOUS can be taken out"
        : `${faults} secrets are not sealed under LIMBER_MASTER_KEY; keep LIMBER_MASTER_KEY_PREVIOUS`,
    );
    return faults === 0 ? 0 : 1;
  } finally {
    await sql.end();
  }
}

main().then(
  (code) => process.exit(code),
  (thrown: unknown) => {
    console.error(thrown instanceof Error ? thrown.message : String(thrown));
    process.exit(2);
  },
);
