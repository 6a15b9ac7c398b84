import type { QueuedClaim } from '../../src/delivery/enqueue.ts'

/** A fake queue: it runs jobs at once, or simulates a failure of a queue. */
export class FakeQueue {
  /**
   * 'deliver': runs jobs at once. 'hold': keeps jobs until `run`. 'lose': accepts jobs and drops them. 'refuse': adds nothing.
   * 'late': keeps jobs, but its answer comes too late, so the caller believes that nothing was added.
   */
  mode: 'deliver' | 'hold' | 'lose' | 'refuse' | 'late' = 'deliver'
  /** In the mode 'late': runs before the caller learns that nothing was added. */
  late: () => Promise<unknown> = async () => {}
  roomLeft = 10_000
  readonly jobs: QueuedClaim[][] = []
  readonly #run: (job: QueuedClaim[]) => Promise<void>
  readonly #running = new Set<Promise<void>>()
  constructor(run: (job: QueuedClaim[]) => Promise<void>) {
    this.#run = run
  }

  async add(deliveries: QueuedClaim[]): Promise<QueuedClaim[]> {
    if (this.mode === 'refuse') return deliveries
    for (const name of new Set(deliveries.map(({ downstream }) => downstream))) {
      const job = deliveries.filter(({ downstream }) => downstream === name)
      if (this.mode === 'deliver') void this.#start(job)
      if (this.mode === 'hold' || this.mode === 'late') this.jobs.push(job)
    }
    if (this.mode === 'late') {
      await this.late()
      return deliveries
    }
    return []
  }

  room(): number {
    return this.roomLeft
  }

  /** Runs the jobs that it holds. */
  async run(): Promise<void> {
    await Promise.all(this.jobs.splice(0).map(job => this.#start(job)))
  }

  #start(job: QueuedClaim[]): Promise<void> {
    const done = this.#run(job).finally(() => this.#running.delete(done))
    this.#running.add(done)
    return done
  }

  /** Resolves when each delivery of the jobs at work has its slot. */
  async idle(): Promise<void> {
    await Promise.all(this.#running)
  }

  /** As FLUSHALL. */
  flush(): void {
    this.jobs.length = 0
  }
}
