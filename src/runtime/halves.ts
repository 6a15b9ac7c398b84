interface Halves<Item, Result> {
  /** Does the work for all of these by one call. */
  work: (items: readonly Item[]) => Promise<readonly Result[]>
  /** May one of several items be the cause of this error? If not, the error ends the work. */
  mayBeOfOne: (err: unknown) => boolean
  /** Called for an item whose work fails alone. It may throw, which ends the work. */
  setAside: (item: Item, err: unknown) => unknown
}

/**
 * Works on all items at once. If that fails, and one of them may be the cause, it works on them in halves, one after the other, down to
 * the item. So no item keeps the others from their work, whatever it holds. The results have the order of the items.
 */
export async function inHalves<Item, Result>(
  items: readonly Item[],
  halves: Halves<Item, Result>
): Promise<Result[]> {
  const [first] = items
  if (first === undefined) return []
  try {
    return [...(await halves.work(items))]
  } catch (err) {
    if (!halves.mayBeOfOne(err)) throw err
    if (items.length === 1) {
      await halves.setAside(first, err)
      return []
    }
    const half = items.length >> 1
    const before = await inHalves(items.slice(0, half), halves)
    return [...before, ...(await inHalves(items.slice(half), halves))]
  }
}
