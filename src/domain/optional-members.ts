type Defined<Members> = {
  [Name in keyof Members as undefined extends Members[Name] ? never : Name]: Members[Name]
} & {
  [Name in keyof Members as undefined extends Members[Name] ? Name : never]?: Exclude<
    Members[Name],
    undefined
  >
}

/** A copy without the members that are undefined: what is optional is then absent, and not present without a value. */
export function defined<Members extends object>(members: Members): Defined<Members> {
  const kept: { [name: string]: unknown } = {}
  for (const name in members) if (members[name] !== undefined) kept[name] = members[name]
  return kept as Defined<Members>
}
