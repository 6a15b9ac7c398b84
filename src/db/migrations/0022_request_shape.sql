CREATE TABLE "request_shape" (
	"id" bigint PRIMARY KEY NOT NULL,
	"message_code" text NOT NULL,
	"downstream" text NOT NULL,
	"handler_version" integer NOT NULL,
	"transport" text NOT NULL,
	"method" text,
	"header_names" text[] NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "attempt" ADD COLUMN "handler_version" integer;--> statement-breakpoint
ALTER TABLE "attempt" ADD COLUMN "request_shape" bigint;--> statement-breakpoint
ALTER TABLE "attempt" ADD COLUMN "target" text;--> statement-breakpoint
ALTER TABLE "attempt" ADD COLUMN "body_bytes" integer;--> statement-breakpoint
ALTER TABLE "attempt" ADD COLUMN "body_sha256" "bytea";