/** Polls until `look` is true. After `seconds`, which only end a hang, it throws an error that names `what`. */
export async function until(
  what: string,
  look: () => boolean | Promise<boolean>,
  seconds = 300
): Promise<void> {
  for (const end = performance.now() + seconds * 1000; ;) {
    if (await look()) return
    if (performance.now() > end) throw new Error(`waited ${seconds} s in vain until ${what}`)
    await new Promise(resolve => setTimeout(resolve, 25))
  }
}
