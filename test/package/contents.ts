// The files that may be in the npm package.

const kinds = [
  /^(?:package\.json|README(?:\.zh-CN)?\.md|LICENSE|dist\/sbom\.cdx\.json)$/,
  /^docs\/(?:[\w./-]+\.md|alerts\.yml|grafana\.json)$/,
  /^dist\/src\/[\w./-]+\.(?:js|d\.ts)$/,
  // Only the samples, and no other handler in the same folder.
  /^dist\/handlers\/(?:audit-log|material-sync|order-paid)\.(?:js|d\.ts)$/,
  /^dist\/ui\/[\w-]+\.(?:js|css|html|svg)$/,
  /^src\/db\/migrations\/(?:\d{4}_\w+\.sql|meta\/\w+\.json)$/,
  /^examples\/(?:project|producers|receivers)\/[\w./-]+$/,
  /^openapi\/openapi\.json$/,
  // They are in bundleDependencies because they are patched.
  /^node_modules\/(?:drizzle-orm|postgres)\//
]

/** The paths that `npm pack --json` lists. */
export const filesOf = (json: string): string[] => {
  const [packed] = Object.values(JSON.parse(json) as { files: { path: string }[] }[])
  return packed?.files.map(file => file.path) ?? []
}

export const unexpected = (files: readonly string[]): string[] =>
  files.filter(file => !kinds.some(kind => kind.test(file)))
