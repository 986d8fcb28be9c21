/* A process whose first thread has ended, so that it looks like a zombie, while another works. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *work(void *path) {
    for (int i = 0; i < 3000; i++) {
        FILE *out = fopen(path, "w");
        fprintf(out, "%d\n", getpid());
        fclose(out);
        usleep(10000);
    }
    return 0;
}

int main(int argc, char **argv) {
    pthread_t thread;
    pthread_create(&thread, 0, work, argv[argc - 1]);
    pthread_exit(0);
}
