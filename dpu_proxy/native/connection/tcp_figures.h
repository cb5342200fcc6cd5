/* TCP's own figures of a connection: tcp_figures.c. */
#ifndef XTS_TCP_FIGURES_H
#define XTS_TCP_FIGURES_H

struct xts_tcp_figures;

void tcp_figures(int fd, struct xts_tcp_figures *out);

#endif
