/** Addresses of PostgreSQL as hosts and clients print them. */
import { describe, expect, it } from "vitest";
import { databaseAddress } from "../../src/store/database/address.ts";

const CHECKED = {};
const ENCRYPTED = { rejectUnauthorized: false };
const HOST = "ep-cool-darkness-123456.us-east-2.aws.neon.tech";

describe("a database address", () => {
  it.each([
    ["Neon's", `postgresql://o:p@${HOST}/neondb?sslmode=require&channel_binding=require`, HOST, CHECKED],
    ["Neon's command", `psql 'postgresql://o:p@${HOST}/neondb?sslmode=require&channel_binding=require'`, HOST, CHECKED],
    [
      "Neon's for clients without SNI",
      `postgres://o:p@${HOST}/d?sslmode=require&options=endpoint%3Dep-cool-darkness-123456`,
      HOST,
      ENCRYPTED,
    ],
    [
      "Supabase's",
      "postgresql://postgres.ref:p@aws-0-us-east-1.pooler.supabase.com:6543/postgres?pgbouncer=true",
      "aws-0-us-east-1.pooler.supabase.com",
      "prefer",
    ],
    [
      "Supabase's at Vercel",
      "postgres://postgres.ref:p@aws-0.pooler.supabase.com:6543/postgres?sslmode=require&supa=base-pooler.x",
      "aws-0.pooler.supabase.com",
      ENCRYPTED,
    ],
    [
      "Prisma's",
      "postgresql://u:p@db:5432/app?schema=public&connection_limit=5&pool_timeout=10&connect_timeout=0&statement_cache_size=0",
      "db",
      false,
    ],
    [
      "Prisma's with a checked certificate",
      "postgresql://u:p@db.example.com/app?sslaccept=strict",
      "db.example.com",
      CHECKED,
    ],
    [
      "RDS's",
      "postgres://u:p@mydb.abc123.eu-west-1.rds.amazonaws.com:5432/app?sslmode=verify-full&sslrootcert=system",
      "mydb.abc123.eu-west-1.rds.amazonaws.com",
      CHECKED,
    ],
    [
      "JDBC's",
      "jdbc:postgresql://mydb.example.com:5432/app?user=u&password=p&ssl=true&ApplicationName=x&prepareThreshold=0",
      "mydb.example.com",
      ENCRYPTED,
    ],
    [
      "Heroku's",
      "postgres://u:p@ec2-1-2-3-4.compute-1.amazonaws.com:5432/d",
      "ec2-1-2-3-4.compute-1.amazonaws.com",
      "prefer",
    ],
    [
      "Heroku's for node-postgres",
      "postgres://u:p@ec2-1-2-3-4.compute-1.amazonaws.com:5432/d?sslmode=no-verify",
      "ec2-1-2-3-4.compute-1.amazonaws.com",
      ENCRYPTED,
    ],
    [
      "node-postgres's",
      "postgres://u:p@db.example.com/d?sslmode=require&uselibpqcompat=true",
      "db.example.com",
      ENCRYPTED,
    ],
    ["Render's inside", "postgres://u:p@dpg-abc-a/d", "dpg-abc-a", false],
    [
      "Render's outside",
      "postgres://u:p@dpg-abc-a.oregon-postgres.render.com/d",
      "dpg-abc-a.oregon-postgres.render.com",
      "prefer",
    ],
    ["Fly's", "postgres://u:p@app-db.flycast:5432/app?sslmode=disable", "app-db.flycast", false],
    [
      "Fly's by its inner name",
      "postgres://u:p@top2.nearest.of.app-db.internal:5432/app",
      "top2.nearest.of.app-db.internal",
      false,
    ],
    [
      "Railway's",
      "postgresql://postgres:p@roundhouse.proxy.rlwy.net:23456/railway",
      "roundhouse.proxy.rlwy.net",
      "prefer",
    ],
    [
      "CockroachDB's",
      "postgresql://u:p@free-tier.gcp.cockroachlabs.cloud:26257/d?sslmode=verify-full&options=--cluster%3Dx-1",
      "free-tier.gcp.cockroachlabs.cloud",
      CHECKED,
    ],
    ["SQLAlchemy's", "postgresql+asyncpg://u:p@10.0.0.5/d?ssl=require", "10.0.0.5", ENCRYPTED],
    [
      "an environment file's",
      ' "postgres://u:p@db/d?gssencmode=disable&client_encoding=utf8&keepalives=1" ',
      "db",
      false,
    ],
    ["an assignment in an environment file", "export DATABASE_URL='postgresql://u:p@db/app';", "db", false],
    ["Markdown's", "`postgresql://u:p@db/app`", "db", false],
    [
      "Azure's for psql",
      'psql "host=srv.postgres.database.azure.com port=5432 dbname=postgres user=u password=p sslmode=require"',
      "srv.postgres.database.azure.com",
      ENCRYPTED,
    ],
    ["libpq's keywords with quotes", "host = db user='u' password='p' application_name='it\\'s'", "db", false],
    [
      "pgx's",
      "postgres://u:p@db/d?pool_max_conns=9&pool_max_conn_lifetime=1h&default_query_exec_mode=simple_protocol",
      "db",
      false,
    ],
    ["sqlx's", "postgres://u:p@db/d?statement-cache-capacity=0&sslrootcert=&requirepeer=", "db", false],
    ["node-postgres's pool", "postgres://u:p@db/d?max=10&idleTimeoutMillis=3000&keepAlive=true", "db", false],
    ["Npgsql's mode", "postgres://u:p@db.example.com/d?sslmode=Verify_Full", "db.example.com", CHECKED],
    ["parse-server's", "postgres://u:p@db.example.com/d?ssl=true&rejectUnauthorized=true", "db.example.com", CHECKED],
    [
      "JDBC's with several servers",
      "jdbc:postgresql://a:5432,b:5432/d?targetServerType=primary&reWriteBatchedInserts=true&password=p",
      "a",
      false,
    ],
    [
      "JDBC's with its own factory",
      "jdbc:postgresql://a/d?password=p&sslfactory=org.postgresql.ssl.NonValidatingFactory",
      "a",
      ENCRYPTED,
    ],
    ["Doctrine's", "postgresql://u:p@db/d?serverVersion=16&charset=utf8", "db", false],
  ])("is parsed as %s: its target and its encryption", (_, text, host, tls) => {
    const address = databaseAddress(text);
    expect([address.servers[0], address.password]).toMatchObject([{ host }, "p"]);
    expect(address.tls()).toEqual(tls);
    expect(address.connectTimeoutS).toBeGreaterThan(0);
  });

  it("can name Cloud SQL's socket, whose path has colons", () => {
    const path = "/cloudsql/project:region:instance/.s.PGSQL.5432";
    for (const text of [
      "postgres://u:p@/d?host=/cloudsql/project:region:instance",
      "postgresql://u:p@localhost/d?host=/cloudsql/project:region:instance",
      "postgresql://u:p@%2Fcloudsql%2Fproject%3Aregion%3Ainstance/d",
    ])
      expect([text, databaseAddress(text).servers]).toEqual([text, [{ path }]]);
  });

  it("prefers the port of a parameter, as libpq does", () => {
    expect(databaseAddress("postgres://u:p@db:5432/d?port=6543").servers).toEqual([{ host: "db", port: 6543 }]);
    expect(databaseAddress("postgres://u:p@[2001:db8::1]:6543,db/d").servers).toEqual([
      { host: "2001:db8::1", port: 6543 },
      { host: "db", port: 5432 },
    ]);
  });

  it("reports parameters without effect to the operator", () => {
    const { withoutEffect, parameters } = databaseAddress(
      "postgres://u@a/d?pgbouncer=true&connection_limit=1&application_name=x",
    );
    expect([withoutEffect, parameters]).toEqual([["pgbouncer", "connection_limit"], { application_name: "x" }]);
  });

  it("uses the requested TLS versions and passphrase", () => {
    expect(databaseAddress("postgres://u@a/d?sslmode=require&ssl_min_protocol_version=TLSv1.3").tls()).toEqual({
      rejectUnauthorized: false,
      minVersion: "TLSv1.3",
    });
  });

  it("is encrypted by default only over the internet", () => {
    const tls = (host: string) => databaseAddress(`postgres://u@${host}/d`).tls();
    for (const host of [
      "db",
      "localhost",
      "127.0.0.1",
      "10.1.2.3",
      "192.168.1.1",
      "[::1]",
      "[fd00::1]",
      "%2Frun%2Fpg",
      "db.svc.cluster.local",
    ])
      expect([host, tls(host)]).toEqual([host, false]);
    for (const host of ["db.example.com", "203.0.114.7", "[2600::1]", "db,db.example.com"])
      expect([host, tls(host)]).toEqual([host, "prefer"]);
  });

  it.each([
    ["channel_binding=require&sslmode=disable", "sslmode=disable"],
    ["ssl=true&sslmode=disable", "sslmode=disable"],
    ["sslmode=yes", "sslmode is one of"],
    ["require_auth=scram-sha-256", "pg_hba.conf"],
    ["gssencmode=require", "sslmode=verify-full"],
    ["sslcrl=/crl.pem", "revocation"],
    ["sslidentity=client.p12", "sslcert and sslkey"],
    ["schema=limber", "options=-c%20search_path%3D"],
    ["client_encoding=latin1", "UTF8"],
    ["target_session_attrs=standby", "a gateway writes"],
    ["connection_limi=5", "got connection_limi"],
    ["sslmodee=require", "got sslmodee"],
    ["sslmode=disable&sslmode=verify-full", "sets sslmode once"],
    ["sslmode=", "sslmode is one of"],
    ["sslinline=true", "paths of files"],
    ["targetServerType=secondary", "a gateway writes"],
    ["sslfactory=com.example.Own", "sslrootcert instead of sslfactory"],
  ])("with %s is refused with instructions", (query, words) => {
    const read = () => databaseAddress(`postgres://u:s3cret@a/d?${query}`);
    expect(read).toThrow(words);
    expect(read).not.toThrow("s3cret");
  });

  it.each([
    [
      "Supabase's before its password is put in",
      "postgresql://postgres:[YOUR-PASSWORD]@db.ref.supabase.co:5432/postgres",
      "[YOUR-PASSWORD]",
    ],
    ["a password that is not percent-encoded", "postgres://u:s3cret#x@a/d", "%23 %2F %3F"],
    ["a password with a slash", "postgres://u:12/s3cret@a/d", "%23 %2F %3F"],
    ["a password with a question mark", "postgres://u:12?s3cret@a/d", "%23 %2F %3F"],
    ["a password with a question mark and an equals sign", "postgres://u:x?s3cret=1@a/d", "%23 %2F %3F"],
    ["a password with a percent sign", "postgres://u:s3cret%@a/d", "%25"],
    ["Neon's with a hidden password", "postgresql://u:****************@a/d", "placeholder"],
    ["a template", "postgresql://u:\u0024{DB_PASSWORD}@a/d", "placeholder"],
    ["a documentation page", "postgresql://u:<password>@a/d", "placeholder"],
    [".NET", "Host=a;Username=u;Password=s3cret;Database=d", "begins with postgres://"],
    [".NET in lower case", "host=a;username=u;password=s3cret", "begins with postgres://"],
    ["an IPv6 address without brackets", "postgresql://u:s3cret@2001:db8::1/d", "[IPv6 address]:port"],
    ["nothing", "", "begins with postgres://"],
    ["Prisma Accelerate's", "prisma+postgres://accelerate.prisma-data.net/?api_key=s3cret", "begins with postgres://"],
    ["another database's", "mysql://u:s3cret@a/d", "begins with postgres://"],
  ])("of %s is refused with an explanation", (_, text, words) => {
    expect(() => databaseAddress(text)).toThrow(words);
    expect(() => databaseAddress(text)).not.toThrow("s3cret");
  });
});
