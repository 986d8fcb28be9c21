/* A process that is never the same for long: it forks and leaves, again and again. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    time_t end = time(0) + 30;
    for (unsigned long generation = 0; time(0) < end; generation++) {
        if (fork() > 0) _exit(0);
        setsid();
        FILE *out = fopen(argv[1], "w");
        fprintf(out, "%d\n", getpid());
        fclose(out);
        usleep(1000);
    }
    return argc;
}
