// What the platform has published, and what each partner has shown of it.
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

/** What does not hold, one line each: every material is with every partner once, as it was published, and nothing else is. */
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

/** A difference of POST /reconcile. */
export interface Difference {
  taskNo: string
  kind: 'MISSING' | 'DIFFERS' | 'UNKNOWN'
}

/** What Ackbox said of a partner, beside what it must say: these are missing, and nothing else differs. */
export function reconciled(
  partner: Partner,
  differences: readonly Difference[],
  missing: readonly string[] = []
): string[] {
  const said = differences.map(({ kind, taskNo }) => `${kind} ${taskNo}`)
  const wanted = missing.map(taskNo => `MISSING ${taskNo}`)
  return [
    ...said.filter(each => !wanted.includes(each)).map(each => `reconcile says of ${partner}: ${each}`),
    ...wanted
      .filter(each => !said.includes(each))
      .map(each => `reconcile does not say of ${partner}: ${each}`)
  ]
}
