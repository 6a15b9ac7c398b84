// Compares the materials that the platform has published with the materials that each partner shows.
export const partners = ['review', 'search', 'library', 'feed'] as const
export type Partner = (typeof partners)[number]

export interface Shown {
  taskNo: string
  material: number
  title: string
}
export interface Material {
  id: number
  title: string
}

/** The violations, one line each: the partner must show every material once, as it was published, and no others. */
export function compared(
  materials: readonly Material[],
  partner: Partner,
  shown: readonly Shown[]
): string[] {
  const wrong = materials.flatMap(({ id, title }) => {
    const here = shown.filter(row => row.material === id)
    if (here.length !== 1) return [`${partner} shows material ${id} ${here.length} times`]
    const [row] = here
    return row?.title === title && row.taskNo === `material-${id}`
      ? []
      : [`${partner} shows material ${id} as ${row?.taskNo}, ${row?.title}`]
  })
  const known = new Set(materials.map(({ id }) => id))
  const strange = shown.filter(row => !known.has(row.material))
  return [
    ...wrong,
    ...strange.map(row => `${partner} shows material ${row.material}, which was never published`)
  ]
}

/** A difference that POST /reconcile reports. */
export interface Difference {
  taskNo: string
  kind: 'MISSING' | 'DIFFERS' | 'UNKNOWN'
}

/** Compares the differences that Ackbox reports for a partner with the expected ones: exactly `missing`. */
export function reconciled(
  partner: Partner,
  differences: readonly Difference[],
  missing: readonly string[] = []
): string[] {
  const reported = differences.map(({ kind, taskNo }) => `${kind} ${taskNo}`)
  const wanted = missing.map(taskNo => `MISSING ${taskNo}`)
  return [
    ...reported.filter(each => !wanted.includes(each)).map(each => `reconcile says of ${partner}: ${each}`),
    ...wanted
      .filter(each => !reported.includes(each))
      .map(each => `reconcile does not say of ${partner}: ${each}`)
  ]
}
