/**
 * Polls until `look` is true. After `seconds`, which only end a hang, it throws an error that names `what`. A function is called then, and
 * may say what was seen instead.
 */
export async function until(
  what: string | (() => string),
  look: () => boolean | Promise<boolean>,
  seconds = 300
): Promise<void> {
  for (const end = performance.now() + seconds * 1000; ;) {
    if (await look()) return
    if (performance.now() > end)
      throw new Error(`waited ${seconds} s in vain until ${typeof what === 'string' ? what : what()}`)
    await new Promise(resolve => setTimeout(resolve, 25))
  }
}
