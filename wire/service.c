/* SPDX-License-Identifier: Apache-2.0 */
/* What every Varlink service reports about itself. */
#include <string.h>

#include "wire/varlink.h"

static const char service_text[] =
    "# What a Varlink service tells of itself.\n"
    "interface org.varlink.service\n"
    "\n"
    "method GetInfo() -> (\n"
    "  vendor: string,\n"
    "  product: string,\n"
    "  version: string,\n"
    "  url: string,\n"
    "  interfaces: []string\n"
    ")\n"
    "\n"
    "method GetInterfaceDescription(interface: string) -> (description: string)\n"
    "\n"
    "error InterfaceNotFound (interface: string)\n"
    "error MethodNotFound (method: string)\n"
    "error MethodNotImplemented (method: string)\n"
    "error InvalidParameter (parameter: string)\n"
    "error PermissionDenied ()\n"
    "error ExpectedMore ()\n";

static void put_info(struct json_writer *w, const struct varlink_service *service) {
    json_name(w, "vendor");
    json_put_string(w, service->vendor);
    json_name(w, "product");
    json_put_string(w, service->product);
    json_name(w, "version");
    json_put_string(w, service->version);
    json_name(w, "url");
    json_put_string(w, service->url);
    json_name(w, "interfaces");
    json_begin(w, '[');
    json_put_string(w, "org.varlink.service");
    json_put_string(w, VARLINK_INTERFACE);
    json_end(w, ']');
}

void varlink_service_reply_write(struct json_writer *w, const struct varlink_call *call,
                                 const struct varlink_service *service) {
    const char *text = NULL;

    if (call->method == VARLINK_GET_INTERFACE_DESCRIPTION) {
        if (strcmp(call->interface, VARLINK_INTERFACE) == 0)
            text = varlink_interface_text;
        else if (strcmp(call->interface, "org.varlink.service") == 0)
            text = service_text;
        if (!text) {
            varlink_failure_write(w, &(struct failure){ .code = FAILURE_INTERFACE_NOT_FOUND,
                                                        .interface = call->interface });
            return;
        }
    }
    w->comma = false;
    json_begin(w, '{');
    json_name(w, "parameters");
    json_begin(w, '{');
    if (text) {
        json_name(w, "description");
        json_put_string(w, text);
    } else {
        put_info(w, service);
    }
    json_end(w, '}');
    json_end(w, '}');
}
