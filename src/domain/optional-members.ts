// Optional members of an object: without a value they are absent.

type Defined<Members> = {
  [Name in keyof Members as undefined extends Members[Name] ? never : Name]: Members[Name]
} & {
  [Name in keyof Members as undefined extends Members[Name] ? Name : never]?: Exclude<
    Members[Name],
    undefined
  >
}

/** A copy without the members that are undefined. */
export function defined<Members extends object>(members: Members): Defined<Members> {
  const kept: { [name: string]: unknown } = {}
  for (const name in members) if (members[name] !== undefined) kept[name] = members[name]
  return kept as Defined<Members>
}

/** The member if there is a value, else no member. Columns of PostgreSQL without a value are null. */
export const present = <Name extends string, Value>(
  name: Name,
  value: Value | null | undefined
): { [name in Name]?: Value } =>
  value === null || value === undefined ? {} : ({ [name]: value } as { [name in Name]?: Value })
