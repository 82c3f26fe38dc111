-- The tables of a dataset (torchprof export RUN --format parquet -o DATASET) as views, for DuckDB 1.1 and later. The other files of this
-- directory are questions to them, one each:
--
--     duckdb -cmd "SET VARIABLE dataset = 'DATASET'" -init views.sql -c "$(cat operators.sql)"
--
-- A dataset may lie in an object store: 's3://bucket/run', after INSTALL httpfs. Many runs at once: 's3://bucket/*'.
-- Spark answers the same questions (../dataset-spark), and so does Dask (../dataset-dask).
-- docs/formats.md says what the columns mean. Those of slices that no question names are not read.
CREATE OR REPLACE VIEW slices AS
    FROM read_parquet(getvariable('dataset') || '/host=*/*.parquet', hive_partitioning = true, hive_types_autocast = false);
CREATE OR REPLACE VIEW steps AS FROM read_parquet(getvariable('dataset') || '/steps.parquet');
CREATE OR REPLACE VIEW collectives AS FROM read_parquet(getvariable('dataset') || '/collectives.parquet');
CREATE OR REPLACE VIEW processes AS FROM read_parquet(getvariable('dataset') || '/processes.parquet');
-- Of the earlier run that changed.sql compares with; where none is named, of the same one.
CREATE OR REPLACE VIEW base_slices AS
    FROM read_parquet(coalesce(getvariable('base'), getvariable('dataset')) || '/host=*/*.parquet', hive_partitioning = true, hive_types_autocast = false);
CREATE OR REPLACE VIEW base_steps AS FROM read_parquet(coalesce(getvariable('base'), getvariable('dataset')) || '/steps.parquet');
