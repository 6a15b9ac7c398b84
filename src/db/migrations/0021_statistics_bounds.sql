ALTER TABLE "stat_minute" ADD COLUMN "first_tries" integer;--> statement-breakpoint
ALTER TABLE "stat_minute" ADD COLUMN "first_delivered" integer;--> statement-breakpoint
ALTER TABLE "stat_minute" ADD COLUMN "failed_later" integer;--> statement-breakpoint
ALTER TABLE "stat_minute" ADD COLUMN "shortest_ms" double precision;--> statement-breakpoint
ALTER TABLE "stat_minute" ADD COLUMN "longest_ms" double precision;