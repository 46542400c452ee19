#!/bin/sh
# What the guest's image has beyond MariaDB's packages: the server's user, in the group
# that may have a hint table, and a database with sysbench's tables. All of it is made
# here, where it costs no emulation. Run in the image's tree while that is made.
set -e
groupadd --system giveway
useradd --system --no-create-home --groups giveway mysql
data=/srv/mariadb socket=/tmp/mariadb.socket
mariadb-install-db --no-defaults --datadir=$data --user=mysql --skip-test-db \
	--auth-root-authentication-method=normal >/dev/null
mariadbd --no-defaults --datadir=$data --user=mysql --socket=$socket --skip-networking \
	--innodb-log-file-size=16M &
server=$!
until mariadb --no-defaults -S $socket -e 'SELECT 1' >/dev/null 2>&1; do
	kill -0 $server
	sleep 0.2
done
mariadb --no-defaults -S $socket -e "CREATE DATABASE sbtest; CREATE USER app, backup;
	GRANT ALL ON sbtest.* TO app; GRANT SELECT, LOCK TABLES, SHOW VIEW ON sbtest.* TO backup"
sysbench oltp_read_write --db-driver=mysql --mysql-socket=$socket --mysql-user=app \
	--tables=4 --table-size=5000 prepare
mariadb --no-defaults -S $socket -e 'SET GLOBAL innodb_fast_shutdown = 0'
kill $server
wait $server
