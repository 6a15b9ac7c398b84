CREATE TABLE "alarm" (
	"task_id" uuid NOT NULL,
	"downstream" text NOT NULL,
	"attempt" integer NOT NULL,
	"kind" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"sent_at" timestamp with time zone,
	"resolved_at" timestamp with time zone,
	"tries" integer DEFAULT 0 NOT NULL,
	"next_action_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "alarm_pkey" PRIMARY KEY("task_id","downstream","attempt","kind"),
	CONSTRAINT "alarm_kind_check" CHECK ("alarm"."kind" in ('FAILED', 'NO_HANDLER', 'BLOCKED_TARGET', 'TLS'))
);
--> statement-breakpoint
CREATE TABLE "api_key" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"hash" text NOT NULL,
	"scopes" text[] NOT NULL,
	"message_codes" text[],
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"revoked_at" timestamp with time zone,
	CONSTRAINT "api_key_hash_key" UNIQUE("hash")
);
--> statement-breakpoint
CREATE TABLE "attempt" (
	"task_id" uuid NOT NULL,
	"downstream" text NOT NULL,
	"attempt" integer NOT NULL,
	"outcome" text NOT NULL,
	"reason" text,
	"status_code" integer,
	"answer" "bytea",
	"headers" text,
	"address" text,
	"warning" text,
	"ms" integer NOT NULL,
	"node" text NOT NULL,
	"started_at" timestamp with time zone NOT NULL,
	CONSTRAINT "attempt_pkey" PRIMARY KEY("task_id","downstream","attempt"),
	CONSTRAINT "attempt_outcome_check" CHECK ("attempt"."outcome" in ('delivered', 'refused', 'failed'))
);
--> statement-breakpoint
CREATE TABLE "audit" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"at" timestamp with time zone DEFAULT now() NOT NULL,
	"who" text NOT NULL,
	"what" text NOT NULL,
	"target" text,
	"detail" jsonb
);
--> statement-breakpoint
CREATE TABLE "delivery" (
	"task_id" uuid NOT NULL,
	"downstream" text NOT NULL,
	"status" smallint NOT NULL,
	"phase" text,
	"next_action_at" timestamp with time zone,
	"attempt" integer NOT NULL,
	"tries_left" smallint NOT NULL,
	"lost" smallint DEFAULT 0 NOT NULL,
	"round_from" integer DEFAULT 1 NOT NULL,
	"needs_receipt" boolean NOT NULL,
	"deliver_before" timestamp with time zone,
	"reason" text,
	"delivered_at" timestamp with time zone,
	"handled_at" timestamp with time zone,
	"handled_by" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "delivery_pkey" PRIMARY KEY("task_id","downstream"),
	CONSTRAINT "delivery_status_check" CHECK ("delivery"."status" in (-1, 0, 1, 2)),
	CONSTRAINT "delivery_sending_has_clock" CHECK (("delivery"."status" = 0) = ("delivery"."next_action_at" is not null)),
	CONSTRAINT "delivery_sending_has_phase" CHECK (("delivery"."status" = 0) = ("delivery"."phase" is not null)),
	CONSTRAINT "delivery_handled_has_time" CHECK ("delivery"."status" <> 1 or ("delivery"."handled_at" is not null and "delivery"."handled_by" is not null)),
	CONSTRAINT "delivery_failed_has_reason" CHECK ("delivery"."status" <> 2 or "delivery"."reason" is not null),
	CONSTRAINT "delivery_phase_check" CHECK ("delivery"."phase" in ('WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT')),
	CONSTRAINT "delivery_reason_check" CHECK ("delivery"."reason" in ('SEND_EXHAUSTED', 'RECEIPT_TIMEOUT', 'REFUSED', 'RECEIPT_FAILED', 'EXPIRED', 'SKIPPED', 'DELETED')),
	CONSTRAINT "delivery_handled_by_check" CHECK ("delivery"."handled_by" in ('send', 'answer', 'receipt')),
	CONSTRAINT "delivery_numbers_check" CHECK ("delivery"."attempt" >= 0 and "delivery"."tries_left" >= 0 and "delivery"."lost" >= 0)
) WITH (fillfactor = 70);
--> statement-breakpoint
CREATE TABLE "downstream" (
	"name" text PRIMARY KEY NOT NULL,
	"paused_at" timestamp with time zone,
	"paused_by" text
);
--> statement-breakpoint
CREATE TABLE "node" (
	"id" text PRIMARY KEY NOT NULL,
	"roles" text NOT NULL,
	"version" text NOT NULL,
	"seen_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "receipt" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"task_id" uuid NOT NULL,
	"downstream" text NOT NULL,
	"attempt" integer NOT NULL,
	"result" text NOT NULL,
	"reason" text,
	"data" text,
	"applied" boolean NOT NULL,
	"late" boolean DEFAULT false NOT NULL,
	"remote" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "receipt_result_check" CHECK ("receipt"."result" in ('HANDLED', 'FAILED', 'RETRY', 'PROCESSING'))
);
--> statement-breakpoint
CREATE TABLE "task" (
	"id" uuid PRIMARY KEY NOT NULL,
	"seq" bigserial NOT NULL,
	"task_no" text NOT NULL,
	"message_code" text NOT NULL,
	"scene_type" text NOT NULL,
	"message_body" text NOT NULL,
	"content_hash" text NOT NULL,
	"deliver_start_time" timestamp with time zone,
	"need_callback" boolean,
	"retry_times" smallint,
	"ordering_key" text,
	"extend" jsonb,
	"state" text DEFAULT 'ACTIVE' NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"created_by" text NOT NULL,
	"traceparent" text,
	CONSTRAINT "task_task_no_key" UNIQUE("task_no"),
	CONSTRAINT "task_state_check" CHECK ("task"."state" in ('ACTIVE', 'PREPARED', 'CANCELLED'))
);
--> statement-breakpoint
CREATE INDEX "alarm_unsent_idx" ON "alarm" USING btree ("next_action_at") WHERE "alarm"."sent_at" is null;--> statement-breakpoint
CREATE INDEX "delivery_due_idx" ON "delivery" USING btree ("downstream","next_action_at") WHERE "delivery"."status" = 0;--> statement-breakpoint
CREATE INDEX "delivery_failed_idx" ON "delivery" USING btree ("downstream","task_id") WHERE "delivery"."status" = 2;--> statement-breakpoint
CREATE INDEX "receipt_delivery_idx" ON "receipt" USING btree ("task_id","downstream");--> statement-breakpoint
CREATE FUNCTION "audit_is_append_only"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'audit is append-only: rows are neither changed nor removed';
END
$$;
--> statement-breakpoint
CREATE TRIGGER "audit_append_only" BEFORE UPDATE OR DELETE ON "audit" FOR EACH ROW EXECUTE FUNCTION "audit_is_append_only"();
