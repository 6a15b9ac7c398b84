/** Room that callers share. */
export interface SharedRoom {
  /** Takes `amount` of it. Returns the function that gives it back, or undefined if there is too little for this caller. */
  take(quotaKey: string, amount?: number): (() => void) | undefined
}

/** One caller may have as much as is still free: half of the room if it is alone, so there is always some for another caller. */
export function sharedRoom(most: number): SharedRoom {
  const byKey = new Map<string, number>()
  let taken = 0
  const change = (quotaKey: string, amount: number): void => {
    taken += amount
    const own = (byKey.get(quotaKey) ?? 0) + amount
    if (own > 0) byKey.set(quotaKey, own)
    else byKey.delete(quotaKey)
  }
  return {
    take(quotaKey, amount = 1) {
      if ((byKey.get(quotaKey) ?? 0) + amount > most - taken) return undefined
      change(quotaKey, amount)
      let isGiven = false
      return () => {
        if (!isGiven) change(quotaKey, -amount)
        isGiven = true
      }
    }
  }
}
