/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set-user-ID program: becomes root altogether, says its pid, and stays until its input ends.
 * Told to end by a signal, it says so and stays all the same.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void on_term(int number) {
    static const char text[] = "signalled\n";

    (void)!write(STDOUT_FILENO, text, sizeof(text) - 1);
    (void)number;
}

int main(void) {
    struct sigaction action = { .sa_handler = on_term, .sa_flags = SA_RESTART };
    char c;

    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0) {
        perror("becomes_root");
        return 1;
    }
    sigaction(SIGTERM, &action, NULL);
    printf("root %d\n", (int)getpid());
    fflush(stdout);
    while (read(STDIN_FILENO, &c, 1) == 1)
        ;
    return 0;
}
