/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the shell's client cannot say to a server.
 *
 *	client SOCKET USER prepared STATEMENT	by the binary protocol
 *	client SOCKET USER change OTHER-USER	prints Giveway_session_tier before and after
 *						COM_CHANGE_USER, and after
 *						COM_RESET_CONNECTION
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mysql.h>

static void fail(MYSQL *server)
{
	fprintf(stderr, "client: %s\n", mysql_error(server));
	exit(1);
}

static void print_tier(MYSQL *server)
{
	MYSQL_RES *result;
	MYSQL_ROW row;

	if (mysql_query(server, "SHOW STATUS LIKE 'giveway_session_tier'"))
		fail(server);
	result = mysql_store_result(server);
	row = mysql_fetch_row(result);
	printf("%s\n", row ? row[1] : "none");
	mysql_free_result(result);
}

int main(int argc, char **argv)
{
	MYSQL *server = mysql_init(NULL);

	if (argc != 5)
		return 2;
	if (!mysql_real_connect(server, NULL, argv[2], NULL, NULL, 0, argv[1], 0))
		fail(server);
	if (!strcmp(argv[3], "prepared")) {
		MYSQL_STMT *statement = mysql_stmt_init(server);

		if (mysql_stmt_prepare(statement, argv[4], strlen(argv[4])) ||
		    mysql_stmt_execute(statement) || mysql_stmt_store_result(statement))
			fail(server);
		mysql_stmt_close(statement);
	} else {
		print_tier(server);
		if (mysql_change_user(server, argv[4], NULL, NULL))
			fail(server);
		print_tier(server);
		if (mysql_reset_connection(server))
			fail(server);
		print_tier(server);
	}
	mysql_close(server);
	return 0;
}
