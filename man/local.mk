# SPDX-License-Identifier: BSD-3-Clause
#
# Manual pages, made from the public headers, the table of variables and the programs' --help, so
# that nothing is written twice. The headers say how many there are and how they are named, so
# automake does not know them, and rules of our own install them.

man_headers = $(top_srcdir)/lib/conf/conf.c $(tuttiinclude_HEADERS)
# Programs of bench/ among these have a page.
man_programs = $(noinst_PROGRAMS) $(inside_programs)
man_awk = %reldir%/text.awk %reldir%/headers.awk %reldir%/pages.awk %reldir%/program.awk
EXTRA_DIST += $(man_awk)

# The day of the newest header, unless SOURCE_DATE_EPOCH says another one.
MAN_DATE = if test -n "$$SOURCE_DATE_EPOCH"; \
    then date -u -d "@$$SOURCE_DATE_EPOCH" +%F; \
    else for header in $(top_srcdir)/include/tutti/*.h; do date -u -r $$header +%F; done | \
        sort | tail -n 1; fi

%reldir%/library.stamp: $(man_headers) $(man_awk)
	$(AM_V_GEN)rm -rf %D%/man3 %D%/man7 && $(MKDIR_P) %D%/man3 %D%/man7 && \
	$(AWK) -v out=%D% -v date="`$(MAN_DATE)`" -v version=$(VERSION) \
	    -f $(srcdir)/%D%/text.awk -f $(srcdir)/%D%/headers.awk -f $(srcdir)/%D%/pages.awk \
	    $(top_srcdir)/lib/conf/conf.c $(top_srcdir)/include/tutti/*.h && \
	touch $@

# A program that was built for another machine is not asked for its options. The functions' pages
# come first: the page of a program with a function's name refers to the function's page.
%reldir%/programs.stamp: $(man_programs) $(man_awk) %reldir%/library.stamp
	$(AM_V_GEN)rm -rf %D%/man1 && $(MKDIR_P) %D%/man1 && \
	for program in $(man_programs); do \
	    case $$program in bench/*) ;; *) continue ;; esac; \
	    name=`basename $$program $(EXEEXT)` && \
	    if test $(build_triplet) = $(host_triplet); \
	    then ./$$program --help; else :; fi >%D%/help && \
	    $(AWK) -v out=%D% -v name=$$name -v date="`$(MAN_DATE)`" -v version=$(VERSION) \
	        -f $(srcdir)/%D%/text.awk -f $(srcdir)/%D%/program.awk \
	        $(srcdir)/bench/$$name.c %D%/help || exit 1; \
	done && \
	rm -f %D%/help && touch $@

man-pages: %reldir%/library.stamp %reldir%/programs.stamp
all-local: man-pages

if TOOLS
man_sections = man1 man3 man7
else
man_sections = man3 man7
endif
install-data-local: install-man-pages
install-man-pages: man-pages
	for section in $(man_sections); do \
	    $(MKDIR_P) "$(DESTDIR)$(mandir)/$$section" && \
	    $(INSTALL_DATA) %D%/$$section/* "$(DESTDIR)$(mandir)/$$section" || exit 1; \
	done

uninstall-local: uninstall-man-pages
uninstall-man-pages: man-pages
	for page in `cd %D% && echo man[137]/*`; do \
	    rm -f "$(DESTDIR)$(mandir)/$$page"; \
	done

clean-local: clean-man-pages
clean-man-pages:
	rm -rf %D%/man1 %D%/man3 %D%/man7 %D%/help %D%/*.stamp

.PHONY: man-pages install-man-pages uninstall-man-pages clean-man-pages
