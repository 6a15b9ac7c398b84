// Apart from cluster.ts: the thread that beats loads nothing more.

/** The time after which a process that has not written its row does not live, in SQL. */
export const liveFor = "interval '15 s'"

/** The condition on `node` for a process that lives, in SQL. */
export const isLive = `seen_at > now() - ${liveFor}`
