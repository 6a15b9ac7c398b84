// The producers: POSTs tasks as fast as answers come (so many in flight), or at a steady rate whatever comes back.
import { setTimeout as sleep } from 'node:timers/promises'
import { Pool } from 'undici'
import { now, serve } from './child.ts'

export interface LoadQuestion {
  target: string
  run: string
  tasks: number
  inFlight: number
  /** Tasks a second; without it each answer calls for the next task. */
  rate?: number
}
export interface LoadReport {
  /** By index of the task: ms when its POST was due to leave. */
  starts: Float64Array
  refused: number
  /** Ms when the last answer came. */
  ended: number
}

const note = 'x'.repeat(120)
const bodyOf = (taskNo: string, index: number) =>
  `{"taskNo":"${taskNo}","messageCode":"bench","sceneType":"","messageBody":` +
  `{"orderId":"${taskNo}","cents":${index},"note":"${note}"}}`
const headers = { 'content-type': 'application/json' }

serve({}, async ({ target, run, tasks, inFlight, rate }: LoadQuestion): Promise<LoadReport> => {
  const pool = new Pool(target, { connections: inFlight, pipelining: 1 })
  const starts = new Float64Array(tasks)
  let refused = 0
  const post = (index: number) =>
    new Promise<void>(resolve => {
      const over = (status: number) => {
        if (status < 200 || status > 299) refused++
        resolve()
      }
      let status = 0
      const path = '/tasks'
      const body = bodyOf(`${run}-${index}`, index)
      pool.dispatch(
        { path, method: 'POST', headers, body },
        {
          onRequestStart() {},
          onResponseStart: (_, code) => void (status = code),
          onResponseData() {},
          onResponseEnd: () => over(status),
          onResponseError: () => over(0)
        }
      )
    })

  if (rate === undefined) {
    let next = 0
    const producer = async () => {
      for (let index = next++; index < tasks; index = next++) {
        starts[index] = now()
        await post(index)
      }
    }
    await Promise.all(Array.from({ length: inFlight }, producer))
  } else {
    // Open loop: the clock says when a task is due; one that leaves late counts from when it should have left.
    const began = now()
    const answers: Promise<void>[] = []
    for (let index = 0; index < tasks; index++) {
      const due = began + (index * 1000) / rate
      if (due > now()) await sleep(due - now())
      starts[index] = due
      answers.push(post(index))
    }
    await Promise.all(answers)
  }
  const ended = now()
  await pool.close()
  return { starts, refused, ended }
})
