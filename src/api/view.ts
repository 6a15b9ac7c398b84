import type { FastifyReply } from 'fastify'
import type { TaskView } from './deps.ts'

/** The body goes out as the text that came in: a trip through JSON.parse would change what 1e400 or 1.0 says. */
export function taskText(task: TaskView): string {
  if (task.messageBody === undefined) return JSON.stringify(task)
  const { messageBody, ...rest } = task
  return `${JSON.stringify(rest).slice(0, -1)},"messageBody":${messageBody}}`
}

export function tasksText(page: { tasks: TaskView[]; nextCursor?: string }): string {
  const next = page.nextCursor === undefined ? '' : `,"nextCursor":${JSON.stringify(page.nextCursor)}`
  return `{"tasks":[${page.tasks.map(taskText).join()}]${next}}`
}

export function json(reply: FastifyReply, text: string): FastifyReply {
  return reply.header('content-type', 'application/json; charset=utf-8').send(text)
}
