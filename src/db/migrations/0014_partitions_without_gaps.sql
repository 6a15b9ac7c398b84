-- A day has 24 hours in UTC. In a session whose time zone has daylight saving, `day + interval '1 day'` was an hour off twice a year:
-- an hour, or nearly a day, had no partition. The rest of such a day gets a partition of its own, which has its hour in its name.
CREATE OR REPLACE FUNCTION "make_partition"(parent text, id uuid) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '2s' AS $$
DECLARE
	day timestamptz := day_of_id(id);
	first uuid := lowest_id(day);
	upto uuid := lowest_id(day + interval '24 hours');
	made text := parent || '_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD');
	beside uuid;
BEGIN
	IF parent NOT IN ('attempt', 'receipt') THEN
		RAISE EXCEPTION '% has no partitions', parent USING ERRCODE = '22023';
	END IF;
	-- Two that make the same one wait here for each other.
	EXECUTE format('LOCK TABLE %I IN SHARE UPDATE EXCLUSIVE MODE', parent);
	IF EXISTS (SELECT FROM partitions_of(parent) p WHERE (p.low IS NULL OR p.low <= id) AND id < p.high) THEN
		RETURN NULL;
	END IF;
	SELECT p.high INTO beside FROM partitions_of(parent) p WHERE p.high <= id AND p.high > first ORDER BY p.high DESC LIMIT 1;
	IF FOUND THEN
		first := beside;
		made := made || to_char(
			to_timestamp(('x' || left(replace(beside::text, '-', ''), 12))::bit(48)::bigint / 1000.0) AT TIME ZONE 'UTC', '"_"HH24MI');
	END IF;
	SELECT p.low INTO beside FROM partitions_of(parent) p WHERE p.low > id AND p.low < upto ORDER BY p.low LIMIT 1;
	upto := coalesce(beside, upto);
	EXECUTE format('CREATE TABLE %s.%I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)',
		(SELECT relnamespace::regnamespace FROM pg_class WHERE oid = parent::regclass), made, parent);
	EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, made, first, upto);
	RETURN made;
END
$$;
--> statement-breakpoint
-- A function that is replaced loses its settings.
DO $$
BEGIN
	EXECUTE format('ALTER FUNCTION make_partition(text, uuid) SET search_path = pg_catalog, %I, pg_temp', current_schema());
END
$$;
