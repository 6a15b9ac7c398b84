/** Room that callers share. */
export interface SharedRoom {
  /** Takes `amount` of it. Returns the function that gives it back, or undefined if there is too little for this owner. */
  take(owner: string, amount?: number): (() => void) | undefined
}

/** One owner may have as much as is still free: half of the room if it is alone, so there is always some for another owner. */
export function sharedRoom(most: number): SharedRoom {
  const byOwner = new Map<string, number>()
  let taken = 0
  const change = (owner: string, amount: number): void => {
    taken += amount
    const own = (byOwner.get(owner) ?? 0) + amount
    if (own > 0) byOwner.set(owner, own)
    else byOwner.delete(owner)
  }
  return {
    take(owner, amount = 1) {
      if ((byOwner.get(owner) ?? 0) + amount > most - taken) return undefined
      change(owner, amount)
      let isGiven = false
      return () => {
        if (!isGiven) change(owner, -amount)
        isGiven = true
      }
    }
  }
}
