/*
 * The classes of NPB's IS: 2^keys_log keys below 2^limit_log, and which ranks five of the keys must have. For is.c alone.
 *
 * Each iteration changes two keys: key `iteration` becomes that small, and key `iteration + 10` that much less than the limit. So
 * the rank of a key in between moves by one each time: `moves` says up or down, and the published rank is that of iteration `late`.
 */
#ifndef BENCH_IS_CLASSES_H
#define BENCH_IS_CLASSES_H

enum { TESTS = 5 };

static const struct class {
    char name;
    int keys_log, limit_log;
    int index[TESTS], rank[TESTS], moves[TESTS], late[TESTS];
} classes[] = {
    {'S', 16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}, {1, 1, 1, -1, -1}, {0}},
    {'W', 20, 16, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018},
     {1, 1, -1, -1, -1}, {2, 2, 0, 0, 0}},
    {'A', 23, 19, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264},
     {1, 1, 1, -1, -1}, {1, 1, 1, 1, 1}},
    {'B', 25, 21, {41869, 812306, 5102857, 18232239, 26860214}, {33422937, 10244, 59149, 33135281, 99},
     {-1, 1, 1, -1, 1}, {0}},
    {'C', 27, 23, {44172927, 72999161, 74326391, 129606274, 21736814}, {61147, 882988, 266290, 133997595, 133525895},
     {1, 1, 1, -1, -1}, {0}},
};

#endif
