# Giveway: `make demo` shows what it does, `make test` proves it, `make check` is what a
# change is tried with.
#
# Every target does the set-up it needs. What takes long to make (emulator,
# kernel, guest image) is kept in ${XDG_CACHE_HOME:-~/.cache}/giveway, outside
# the checkout.

.DEFAULT_GOAL := help
.PHONY: help setup build check test test-long test-kernels test-cfl-kernel test-debug-kernel test-uintr test-postgres test-mariadb test-seeds demo lab servers install uninstall package package-node image extension deb clean

BIN := target/release
GIVEWAY := $(BIN)/giveway
PROGRAMS := $(addprefix $(BIN)/,giveway giveway-bench giveway-sql scx_ufs)
PREFIX ?= /usr/local
VERSION = $(shell sed -n '/workspace.package/,/^$$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The first that is here.
CONTAINER ?= $(shell for tool in podman buildah docker; do command -v $$tool && break; done)

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 26

setup: ## Install what building and testing take
	@scripts/setup.sh test

build: ## Build all programs into target/release
	@scripts/setup.sh build
	cargo build --release --locked

check: setup ## Check formatting, lints; run tests that boot no guest
	cargo xtask check

test: setup ## Check all; run the tests that each change must pass
	cargo xtask ci

test-long: setup ## Run tests that take hours: stress, sanitizers, units
	cargo xtask long

test-kernels: setup ## Run UFS on kernels from 6.12 on; builds one once
	cargo xtask kernels

test-cfl-kernel: setup ## Run the kernel with scheduled locks; builds it once
	cargo xtask cfl-kernel

test-debug-kernel: setup ## Run our kernel code under KASAN; builds it once
	cargo xtask debug-kernel

test-uintr: setup ## Run user interrupts in the lab: module and users
	cargo xtask uintr

test-postgres: setup ## Run the PostgreSQL extension on Debian's versions
	postgres/versions.sh

test-mariadb: ## Run the MariaDB plugin here and in the lab
	@scripts/setup.sh mariadb
	mariadb/test.sh
	cargo xtask mariadb

test-seeds: setup ## Run claims about UFS with 20 seeds each
	cargo xtask seeds

# What the demo takes and no more: the program that measures, without the engines that it
# does not measure here, and the scheduler; neither servers nor shells of tests.
DEMO := --profile demo --no-default-features \
	-p giveway-bench -p scx_ufs --bin giveway-bench --bin scx_ufs

demo: ## Compare four schedulers; write report.html
	@scripts/setup.sh demo
	cargo build --locked $(DEMO)
	target/demo/giveway-bench mixed --lab --quick --cpus 2 --schedulers eevdf,idle,rr,ufs \
		--mixes SOLO,MIN:MAX --results target/results --html report.html

lab: build ## Make the lab's emulator, kernel and image now
	@scripts/setup.sh demo
	$(GIVEWAY) lab build

servers: setup ## Build PostgreSQL 17 for the lab, stock and patched
	postgres/lab-server.sh 17 stock
	postgres/lab-server.sh 17 patched

# Where `install` puts things and `uninstall` finds them. Options of the administrator's
# are his: they are not overwritten, and removed only if he has not changed them.
MAN = $(DESTDIR)$(PREFIX)/share/man/man1
DOC = $(DESTDIR)$(PREFIX)/share/doc/giveway
BASH = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
SYSUSERS = $(DESTDIR)$(PREFIX)/lib/sysusers.d
SYSTEMD = $(DESTDIR)/etc/systemd/system
DEFAULTS = $(DESTDIR)/etc/default/giveway
UNITS := giveway.service giveway-meta.service giveway-metrics.service
SELF_DESCRIBING := giveway giveway-bench giveway-sql
TOP_PAGES := README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md

install: build ## Install programs, units, pages and more under PREFIX
	install -D -t $(DESTDIR)$(PREFIX)/bin $(PROGRAMS)
	install -D -m 644 -t $(SYSTEMD) $(addprefix dist/,$(UNITS) background.slice)
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib $(BIN)/libgiveway_cfl.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/giveway dist/grafana-giveway.json
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/giveway/perfetto dist/perfetto/*.sql
	install -D -m 644 -t $(DOC) $(TOP_PAGES) LICENSE-*
	for dir in docs docs/*/ dist/kubernetes dist/sql; do \
		find $$dir -maxdepth 1 -type f -exec install -D -m 644 -t $(DOC)/$$dir {} + || exit; \
	done
	install -D -m 644 dist/debian/giveway.sysusers $(SYSUSERS)/giveway.conf
	[ -e $(DEFAULTS) ] || install -D -m 644 dist/debian/giveway.default $(DEFAULTS)
	install -d $(MAN) $(BASH) $(ZSH) $(FISH)
	for program in $(SELF_DESCRIBING); do \
		$(BIN)/$$program man $(MAN) && \
		$(BIN)/$$program completions bash >$(BASH)/$$program && \
		$(BIN)/$$program completions zsh >$(ZSH)/_$$program && \
		$(BIN)/$$program completions fish >$(FISH)/$$program.fish || exit; \
	done
	$(BIN)/scx_ufs --man >$(MAN)/scx_ufs.1
ifndef DESTDIR
	getent group giveway >/dev/null || groupadd --system giveway
	[ ! -d /run/systemd/system ] || systemctl daemon-reload
endif

uninstall: ## Stop what runs; remove what install has installed
ifndef DESTDIR
	-[ ! -d /run/systemd/system ] || systemctl disable --now $(UNITS)
	! grep -qs '^ufs' /sys/kernel/sched_ext/root/ops || $(PREFIX)/bin/giveway stop
endif
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(notdir $(PROGRAMS)))
	rm -f $(addprefix $(SYSTEMD)/,$(UNITS) background.slice)
	rm -f $(DESTDIR)$(PREFIX)/lib/libgiveway_cfl.so $(SYSUSERS)/giveway.conf
	rm -f $(MAN)/giveway.1 $(MAN)/giveway-*.1 $(MAN)/scx_ufs.1
	rm -f $(addprefix $(BASH)/,$(SELF_DESCRIBING)) $(addprefix $(ZSH)/_,$(SELF_DESCRIBING))
	rm -f $(addsuffix .fish,$(addprefix $(FISH)/,$(SELF_DESCRIBING)))
	rm -rf $(DOC) $(DESTDIR)$(PREFIX)/share/giveway
	! cmp -s dist/debian/giveway.default $(DEFAULTS) || rm $(DEFAULTS)
ifndef DESTDIR
	[ ! -d /run/systemd/system ] || systemctl daemon-reload
endif

package: build ## Build the Debian packages, in target/package
	@scripts/setup.sh package
	dist/package.sh target/release target/package

# Without the SQL engine and the experiments, most of whose code comes from others.
package-node: ## Build the package giveway alone: all that a node needs
	@scripts/setup.sh package
	cargo build --release --locked -p giveway -p scx_ufs -p giveway-cfl-preload
	dist/package.sh --node target/release target/package

image: package ## Build the container image from the package
	$(CONTAINER) build -f dist/container/Containerfile -t giveway:$(VERSION) target/package

extension: ## Install the PostgreSQL extension for PG_CONFIG
	$(MAKE) -C postgres/giveway $(if $(PG_CONFIG),PG_CONFIG=$(PG_CONFIG)) clean
	$(MAKE) -C postgres/giveway $(if $(PG_CONFIG),PG_CONFIG=$(PG_CONFIG)) install

deb: ## Build Debian packages of the PostgreSQL extension
	rm -rf target/deb
	mkdir -p target/deb/crates/hints
	cp -r postgres target/deb/
	cp -r crates/hints/include target/deb/crates/hints/
	cd target/deb/postgres && pg_buildext updatecontrol && dpkg-buildpackage -us -uc -b

clean: ## Remove what was built here; keep the lab's cache
	cargo clean
