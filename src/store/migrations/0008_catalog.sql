-- The facts of the registry that routing doesn't need, as the catalog's files state them: see src/store/catalog.ts.

-- The catalog that was imported last; no row before the first.
create table catalog (
  only_one boolean primary key default true check (only_one),
  -- SHA-256 of its files.
  version text not null,
  -- Its vocabularies with their meanings, and the layouts of the action spaces.
  taxonomy jsonb not null,
  imported_at timestamptz not null default now()
);

-- What the catalog knows of a model beyond `model`. A model without a row here was made known by its provider alone.
create table catalog_entry (
  slug text primary key references model on delete cascade,
  owner text not null,
  year integer not null,
  servable_candidate boolean not null default false,
  params_b double precision check (params_b > 0),
  license text,
  arxiv text,
  repo text,
  weights text,
  protocols text[] not null default '{}',
  sources text[] not null
);

-- Benchmarks, simulators and evaluation suites; never routable.
create table scenario (
  slug text primary key,
  name text not null,
  owner text not null,
  year integer not null,
  target text not null check (target in ('embodied', 'driving', 'game', 'science', 'general')),
  topic text not null,
  runnable boolean not null,
  license text,
  arxiv text,
  repo text,
  sources text[] not null
);

-- Surveys, position papers, theory and tutorials; never routable.
create table literature (
  slug text primary key,
  title text not null,
  kind text not null check (kind in ('survey', 'position', 'theory', 'tutorial')),
  year integer not null,
  domain text not null check (domain in ('embodied', 'driving', 'game', 'science', 'general')),
  arxiv text,
  repo text,
  sources text[] not null
);
