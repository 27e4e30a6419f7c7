/** A call of REST as text to paste: curl, Python, TypeScript. The key is the reader's own, from the environment. */

/** One call. */
export interface Call {
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
}

/** The call in each language, by its name. */
export function snippetsOf({ method, path, body }: Call): Readonly<Record<"curl" | "Python" | "TypeScript", string>> {
  const url = `${location.origin}${path}`;
  const json = body === undefined ? undefined : JSON.stringify(body, null, 2);
  const verb = method === (json === undefined ? "GET" : "POST") ? "" : ` -X ${method}`;
  const curl = [
    `curl -s${verb} '${url}'`,
    `-H "authorization: Bearer $LIMBER_KEY"`,
    ...(json === undefined ? [] : [`-H 'content-type: application/json'`, `-d '${json.replaceAll("'", "'\\''")}'`]),
  ].join(" \\\n  ");
  const python = [
    "import json, os, urllib.request",
    "",
    ...(json === undefined ? [] : [`body = json.loads(r"""${json}""")`]),
    "request = urllib.request.Request(",
    `    ${JSON.stringify(url)},`,
    `    method=${JSON.stringify(method)},`,
    ...(json === undefined ? [] : ["    data=json.dumps(body).encode(),"]),
    `    headers={"authorization": f"Bearer {os.environ['LIMBER_KEY']}", "content-type": "application/json"},`,
    ")",
    "print(json.load(urllib.request.urlopen(request)))",
  ].join("\n");
  const typescript = [
    `const answer = await fetch(${JSON.stringify(url)}, {`,
    `  method: ${JSON.stringify(method)},`,
    `  headers: { authorization: \`Bearer \${process.env.LIMBER_KEY}\`, "content-type": "application/json" },`,
    ...(json === undefined ? [] : [`  body: JSON.stringify(${json.replaceAll("\n", "\n  ")}),`]),
    "});",
    "console.log(await answer.json());",
  ].join("\n");
  return { curl, Python: python, TypeScript: typescript };
}
