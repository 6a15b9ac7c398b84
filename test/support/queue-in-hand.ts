import type { ClaimedDelivery } from '../../src/delivery/enqueue.ts'

/** The queue: hands jobs on at once, or does with them what queues do on bad days. */
export class FakeQueue {
  /** 'deliver': at once. 'hold': they lie in the queue. 'lose': taken and forgotten. 'refuse': it is away. 'late': they come, but its answer is too late. */
  mode: 'deliver' | 'hold' | 'lose' | 'refuse' | 'late' = 'deliver'
  /** In the mode 'late': before the caller hears that nothing was added. */
  late: () => Promise<unknown> = async () => {}
  roomLeft = 10_000
  readonly jobs: ClaimedDelivery[][] = []
  readonly #run: (job: ClaimedDelivery[]) => Promise<void>
  readonly #running = new Set<Promise<void>>()
  constructor(run: (job: ClaimedDelivery[]) => Promise<void>) {
    this.#run = run
  }

  async add(deliveries: ClaimedDelivery[]): Promise<ClaimedDelivery[]> {
    if (this.mode === 'refuse') return deliveries
    for (const name of new Set(deliveries.map(one => one.downstream))) {
      const job = deliveries.filter(one => one.downstream === name)
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

  /** Hands on what lies there. */
  async run(): Promise<void> {
    await Promise.all(this.jobs.splice(0).map(job => this.#start(job)))
  }

  #start(job: ClaimedDelivery[]): Promise<void> {
    const done = this.#run(job).finally(() => this.#running.delete(done))
    this.#running.add(done)
    return done
  }

  /** Resolves when each delivery of the jobs at work has its slot. */
  async idle(): Promise<void> {
    await Promise.all(this.#running)
  }

  /** FLUSHALL. */
  flush(): void {
    this.jobs.length = 0
  }
}
