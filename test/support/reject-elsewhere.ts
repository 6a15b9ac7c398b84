/** A promise of a library that nobody awaits: no line of its stack is in the folder of the handlers. */
export async function rejectElsewhere(): Promise<never> {
  await Promise.resolve()
  throw new Error('of a library')
}
