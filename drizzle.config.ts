import { defineConfig } from 'drizzle-kit'

// After `npx drizzle-kit generate --name <what>`, read the SQL it made: fillfactor and triggers are written by hand.
export default defineConfig({
  dialect: 'postgresql',
  schema: './src/db/schema.ts',
  out: './src/db/migrations'
})
