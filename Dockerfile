# Compiles with everything, then keeps what runs: no compiler, no embedded PostgreSQL (DATABASE_URL is required here).
FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY patches patches
RUN npm ci
COPY tsconfig.json drizzle.config.ts ./
COPY src src
COPY handlers handlers
COPY test test
COPY bench bench
RUN npx tsc -p tsconfig.json && rm -rf dist/test dist/bench

FROM node:24-alpine AS libraries
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY patches patches
# the optional packages are PostgreSQL's binaries and native speed-ups that fall back to JavaScript
RUN npm ci --omit=dev --omit=optional

FROM node:24-alpine
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000
WORKDIR /app
COPY --from=libraries /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY package.json LICENSE ./
COPY src/db/migrations src/db/migrations
COPY openapi openapi
USER node
EXPOSE 3000
STOPSIGNAL SIGTERM
CMD ["node", "--max-semi-space-size=32", "--heap-growing-percent=80", "--no-maglev", "--no-allocation-site-pretenuring", "--v8-pool-size=2", "dist/src/main.js"]
