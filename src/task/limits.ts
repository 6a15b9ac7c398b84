export const limits = {
  depth: 64,
  /** Of all objects of one body together. */
  members: 20_000,
  /** Members and elements of what lies around a body; in a batch, around each one. */
  envelope: 1_000,
  /** So many tasks in one batch are not even looked at; how many are taken is for the schema to say. */
  list: 10_000,
  /** Of the text of one body. */
  bytes: 262_144
} as const
