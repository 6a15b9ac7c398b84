// npm start, npm run demo and the like: compiles, then runs the command in this same process. npm signals only the process that it started.
import { spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const parent = process.ppid
// Without a change it takes seconds.
const told = setTimeout(() => console.error('Compiling. The first time takes about a minute.'), 3_000)
// A process group of its own: one signal ends npm, its shells and the compiler.
const build = spawn('npm', ['run', '-s', 'build'], { detached: true, stdio: ['ignore', 2, 2] })
let stopped
const stop = signal => {
  stopped = signal
  // The compiler goes on to its end after a SIGTERM.
  process.kill(-build.pid, 'SIGKILL')
}
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP']
for (const signal of signals) process.on(signal, stop)
// An npm that was killed passes no signal on.
const watch = setInterval(() => {
  if (process.ppid !== parent) stop('SIGTERM')
}, 500)
const code = await new Promise((resolve, reject) => build.once('error', reject).once('exit', resolve))
clearInterval(watch)
clearTimeout(told)
for (const signal of signals) process.off(signal, stop)

if (stopped) {
  // The next build compiles all: a file may be half written.
  rmSync(new URL('dist/.tsbuildinfo', import.meta.url), { force: true })
  process.kill(process.pid, stopped)
} else if (code !== 0) {
  if (code === null) console.error('The build was killed.')
  process.exit(code ?? 1)
} else {
  const program = new URL('dist/src/cli/ackbox.js', import.meta.url)
  process.argv[1] = fileURLToPath(program)
  await import(program.href)
}
