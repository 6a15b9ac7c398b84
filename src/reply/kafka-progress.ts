/** Which records of each partition are done, and so how far may be committed: never past one that is not. */
export interface Progress {
  /** false: it is being handled already. */
  begin(partition: number, offset: bigint): boolean
  end(partition: number, offset: bigint): void
  busy(): boolean
  /** What is to be committed and was not yet; each is said once. */
  news(): { partition: number; offset: bigint }[]
}

interface Partition {
  open: Set<bigint>
  next: bigint
  said: bigint | undefined
}

export function progress(): Progress {
  const partitions = new Map<number, Partition>()

  return {
    begin(number, offset) {
      let partition = partitions.get(number)
      if (!partition) {
        partition = { open: new Set(), next: offset, said: offset }
        partitions.set(number, partition)
      }
      if (partition.open.has(offset)) return false
      partition.open.add(offset)
      if (offset >= partition.next) partition.next = offset + 1n
      return true
    },

    end: (number, offset) => {
      partitions.get(number)?.open.delete(offset)
    },

    busy: () => [...partitions.values()].some(each => each.open.size > 0),

    news() {
      const offsets: { partition: number; offset: bigint }[] = []
      for (const [number, partition] of partitions) {
        let offset = partition.next
        for (const each of partition.open) if (each < offset) offset = each
        if (offset === partition.said) continue
        partition.said = offset
        offsets.push({ partition: number, offset })
      }
      return offsets
    }
  }
}
